// Layers one after another, laid out once and run again and again: what a network does in one time
// step of inference. There, preparing a call costs more than the arithmetic.
#pragma once

#include <deque>
#include <optional>

#include "lstm.h"

namespace mg {

using In = const float* const*;
using Out = float* const*;

// Hands out the pointers in the order in which Python put them in.
struct Pointers {
    void* const* next;
    template <class T>
    T take(long count) {
        void* const* here = next;
        next += count;
        return (T)here;
    }
    const bool* flags() { return (const bool*)*next++; }
};

// inputs, weights, biases, outputs
inline ConvForward conv_arguments(const Call& call, void* const* pointers) {
    Pointers p{pointers};
    ConvForward c;
    c.inputs = p.take<In>(call.inputs);
    c.weights = p.take<In>(call.outputs);
    c.biases = p.take<In>(call.outputs);
    c.outputs = p.take<Out>(call.outputs);
    return c;
}

// reset, active; inputs, hidden, cell, input and recurrent weights, biases, peepholes; outputs,
// last hidden, last cell, saved
inline LSTMForward lstm_arguments(const Call& call, void* const* pointers) {
    Pointers p{pointers};
    LSTMForward c;
    c.reset = p.flags(), c.active = p.flags();
    c.inputs = p.take<In>(call.inputs);
    for (In* field : {&c.hidden, &c.cell, &c.w_in, &c.w_rec, &c.bias, &c.peephole})
        *field = p.take<In>(call.outputs);
    for (Out* field : {&c.outputs, &c.last_hidden, &c.last_cell, &c.saved})
        *field = p.take<Out>(call.outputs);
    if (!(call.flags & WITH_PEEPHOLE)) c.peephole = nullptr;
    return c;
}

// A level that packs its weights only when they have changed. It compares them all each time:
// nobody tells of a change, and comparing costs a small part of packing.
struct KeptLevel : Level {
    explicit KeptLevel(Level&& level) : Level(std::move(level)) {}

    void pack(const float* input, const float* hidden) {
        long inputs = O * Cin * taps, hiddens = O * Ch * taps;
        if (equal(input_, input, inputs) && equal(hidden_, hidden, hiddens)) return;
        input_.clear();  // known again once all is packed, should memory run out on the way
        convolution->pack_forward(input, hidden);
        hidden_.assign(hidden, hidden + hiddens);
        input_.assign(input, input + inputs);
    }

  private:
    static bool equal(const std::vector<float>& known, const float* now, long count) {
        if (long(known.size()) != count) return false;
        return !now || std::memcmp(known.data(), now, count * sizeof(float)) == 0;
    }
    std::vector<float> input_, hidden_;
};

class Program {
  public:
    // [floats of the program's own memory; steps and for each: kind, length and numbers of the
    // call, length and slots]. A slot is the number of a tensor that comes with every run, -1 for
    // a null pointer, or -2 - n for the program's own memory from float n on.
    explicit Program(const int64_t* at) : own_(*at++) {
        for (long count = *at++; count > 0; count--) {
            Kind kind = Kind(*at++);
            std::vector<int64_t> meta = listed(at);
            steps_.emplace_back(kind, std::move(meta), listed(at));
        }
    }

    void run(void* const* tensors) {
        for (Step& step : steps_) {
            for (size_t i = 0; i < step.slots.size(); i++) {
                long slot = step.slots[i];
                step.pointers[i] =
                    slot >= 0 ? tensors[slot] : slot == -1 ? nullptr : &own_[-2 - slot];
            }
            step.run();
        }
    }

  private:
    enum Kind { CONV = 0, LSTM = 1, MOVE = 2 };

    static std::vector<int64_t> listed(const int64_t*& at) {
        long count = *at++;
        at += count;
        return std::vector<int64_t>(at - count, at);
    }

    struct Step {
        Kind kind;
        std::vector<int64_t> meta, slots;
        std::vector<void*> pointers;
        std::optional<Call> call;
        std::deque<KeptLevel> levels;

        Step(Kind kind, std::vector<int64_t>&& numbers, std::vector<int64_t>&& places)
            : kind(kind), meta(std::move(numbers)), slots(std::move(places)),
              pointers(slots.size()) {
            if (kind == MOVE) return;
            call.emplace(meta.data());
            for (long i = 0; i < call->outputs; i++)
                levels.emplace_back(kind == CONV ? conv_level(*call, i) : lstm_level(*call, i));
        }
        Step(const Step&) = delete;  // its levels point to its call

        void run() {
            if (kind == MOVE) return move((float*)pointers[0], (const float*)pointers[1]);
            if (kind == CONV) {
                ConvForward c = conv_arguments(*call, pointers.data());
                for (KeptLevel& level : levels) level.pack(c.weights[level.index], nullptr);
                conv_forward(*call, levels, c);
            } else {
                LSTMForward c = lstm_arguments(*call, pointers.data());
                for (KeptLevel& level : levels)
                    level.pack(c.w_in[level.index], c.w_rec[level.index]);
                lstm_forward(*call, levels, c);
            }
        }

        // Copies or adds rows of floats: some channels of every sample.
        void move(float* to, const float* from) const {
            long rows = meta[0], count = meta[1], to_row = meta[2], from_row = meta[4];
            to += meta[3];
            for (long row = 0; row < rows; row++, to += to_row, from += from_row)
                if (meta[5])
                    for (long i = 0; i < count; i++) to[i] += from[i];
                else
                    std::memcpy(to, from, count * sizeof(float));
        }
    };

    std::vector<float> own_;
    std::deque<Step> steps_;
};

}  // namespace mg
