// A small pool of threads that share out the parts of a call, and each thread's scratch memory.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "simd.h"

namespace mg {

// Memory of one thread, handed out from the front and kept between calls.
class Scratch {
  public:
    void begin() {
        if (wanted_ > size_) grow();
        used_ = wanted_ = 0;
    }
    // Room for `count` floats, aligned to a cache line. Spills are kept until the next begin().
    float* take(long count) {
        long bytes = round_up(count * 4, 64);
        wanted_ += bytes;
        if (used_ + bytes <= size_) {
            used_ += bytes;
            return (float*)(memory_ + used_ - bytes);
        }
        spills_.push_back(allocate(bytes));
        return (float*)spills_.back();
    }
    float* take_zeros(long count) {
        float* p = take(count);
        if (count) std::memset(p, 0, count * 4);  // p may be null for none
        return p;
    }
    ~Scratch() {
        drop_spills();
        std::free(memory_);
    }

  private:
    static char* allocate(long bytes) {
        void* p = std::aligned_alloc(64, round_up(bytes, 64));
        if (!p) throw std::bad_alloc();
        return (char*)p;
    }
    void drop_spills() {
        for (char* p : spills_) std::free(p);
        spills_.clear();
    }
    void grow() {
        drop_spills();
        std::free(memory_);
        memory_ = nullptr;
        size_ = 0;
        memory_ = allocate(wanted_);
        size_ = round_up(wanted_, 64);
    }
    char* memory_ = nullptr;
    long size_ = 0, used_ = 0, wanted_ = 0;
    std::vector<char*> spills_;
};

inline Scratch& scratch() {
    static thread_local Scratch own;
    return own;
}

// While one lives, its thread takes numbers below 1.2e-38 for zero. Gradients through closed gates are
// such numbers, by the million, and processors take a hundred times as long over each of them. The
// thread is PyTorch's: it gets its own way back. And it may begin other threads, which begin as it is:
// so this is for a thread's own share of a call, never for the whole.
class TinyIsZero {
  public:
#if defined(__SSE__)
    TinyIsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~TinyIsZero() { _mm_setcsr(before_); }

  private:
    unsigned before_;
#elif defined(__aarch64__)
    TinyIsZero() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" ::"r"(before_ | (uint64_t(1) << 24)));
    }
    ~TinyIsZero() { asm volatile("msr fpcr, %0" ::"r"(before_)); }

  private:
    uint64_t before_;
#endif
};

// Asks for large pages behind a big tensor that is about to be written for the first time: with
// small ones, most of the time goes into page faults.
inline void expect_large(float* data, long count) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 2 << 20;
    uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)data + count * sizeof(float)) / page * page;
    if (data && last > first) madvise((void*)first, last - first, MADV_HUGEPAGE);
#else
    (void)data, (void)count;
#endif
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// PyTorch's own OpenMP threads, where Python has found them (``mg_use_openmp``). Two pools would
// fight for the cores: OpenMP's threads keep spinning for a while after PyTorch's last operation.
struct OpenMP {
    using Parallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
    Parallel parallel = nullptr;
    pid_t process = 0;
    // A forked child must not touch the threads of its parent.
    bool usable() const { return parallel && process == getpid(); }
};

inline OpenMP& openmp() {
    static OpenMP found;
    return found;
}

// Workers spin for a moment after a job (layers follow each other closely), then sleep.
class Pool {
  public:
    using Job = void (*)(void* context, int part);

    // Runs job(context, 0 .. parts-1) on at most so many threads, this one among them. Each takes
    // the next part when it has done one, so a thread that has lost its core to somebody else holds
    // up one part only; what belongs to a part is the caller's choice, so results do not depend on
    // timing. Where the pool is taken by another thread, all parts run here.
    static void run(int threads, int parts, Job job, void* context) {
        Team team{job, context, parts, {0}};
        threads = std::min(threads, parts);
        if (threads <= 1) return team.work();
        if (openmp().usable())
            return openmp().parallel([](void* data) { ((Team*)data)->work(); }, &team,
                                     (unsigned)threads, 0);
        Pool& pool = current();
        std::unique_lock<std::mutex> lock(pool.callers_, std::try_to_lock);
        if (!lock.owns_lock()) return team.work();
        pool.dispatch(threads, [](void* data, int) { ((Team*)data)->work(); }, &team);
    }

  private:
    static constexpr int SPINS = 4000;

    struct Team {
        Job job;
        void* context;
        int parts;
        std::atomic<int> next;
        void work() {
            TinyIsZero here;
            for (int part; (part = next.fetch_add(1)) < parts;) job(context, part);
        }
    };

    static Pool& current() {  // after a fork the child has no workers: it gets a pool of its own
        static std::mutex making;
        static std::atomic<Pool*> pool{nullptr};
        Pool* p = pool.load();
        if (!p || p->process_ != getpid()) {
            std::lock_guard<std::mutex> lock(making);
            p = pool.load();
            if (!p || p->process_ != getpid()) pool.store(p = new Pool);
        }
        return *p;
    }

    void dispatch(int parts, Job job, void* context) {
        while (workers_ < parts - 1) {
            int index = workers_ + 1;
            std::thread([this, index, seen = round_.load()] { work(index, seen); }).detach();
            workers_ = index;  // once it runs: the system may refuse
        }
        job_ = job;
        context_ = context;
        parts_ = parts;
        running_.store(workers_);  // those without a part report too, which keeps all in step
        {
            std::lock_guard<std::mutex> lock(sleep_);
            round_.fetch_add(1);
        }
        wake_.notify_all();
        job(context, 0);
        for (int spins = 0; running_.load() != 0; spins++)
            if (spins < SPINS)
                relax();
            else
                std::this_thread::yield();
    }

    void work(int index, uint64_t seen) {
        for (;;) {
            for (int spins = 0; round_.load() == seen && spins < SPINS; spins++) relax();
            if (round_.load() == seen) {
                std::unique_lock<std::mutex> lock(sleep_);
                wake_.wait(lock, [&] { return round_.load() != seen; });
            }
            seen++;
            if (index < parts_) job_(context_, index);
            running_.fetch_sub(1);
        }
    }

    pid_t process_ = getpid();
    std::mutex callers_, sleep_;
    std::condition_variable wake_;
    std::atomic<uint64_t> round_{0};
    std::atomic<int> running_{0};
    int workers_ = 0;
    int parts_ = 0;
    Job job_ = nullptr;
    void* context_ = nullptr;
};

// An exception must not leave a thread that is not the caller's: the first one is thrown here.
template <class F>
void parallel(long threads, long parts, F&& function) {
    std::exception_ptr failure;
    std::mutex failing;
    auto guarded = [&](int part) {
        try {
            function(part);
        } catch (...) {
            std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
        }
    };
    Pool::run(int(threads), int(parts),
              [](void* f, int part) { (*(decltype(guarded)*)f)(part); }, &guarded);
    if (failure) std::rethrow_exception(failure);
}

}  // namespace mg
