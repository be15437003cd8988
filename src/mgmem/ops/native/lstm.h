// MG-conv-LSTM over a sequence, forward and backward. Each group of sequences runs through all
// time steps by itself, so its state, gates and the weights stay in one core's cache.
#pragma once

#include "conv.h"

namespace mg {

// What backward needs of each step lies in a tensor per level, in planes without guards:
// [group][time][i, f, g, o, c (and h, with `active`)][channel][position].
struct Saved {
    long channels, plane, kinds, time;
    float* data;
    Saved(const Level& level, long channels, float* data)
        : channels(channels), plane(round_up(level.fine.vectors(level.group) * LANES, 16)),
          kinds(level.call.flags & WITH_ACTIVE ? 6 : 5), time(level.call.time), data(data) {}
    float* at(long group, long t, long kind) const {
        return data + (((group * time + t) * kinds) + kind) * channels * plane;
    }
};

enum Kind { I = 0, F = 1, G = 2, O = 3, CELL = 4, HIDDEN = 5 };

// Gates to the next c and h, for one channel. Pointers are to the planes of that channel.
struct GatePlanes {
    const float* gates[4];
    const float* peephole[3];  // null: none
    const float* mask;
    float *c, *h;
    float* saved[5];  // null: not kept
    long vectors, plane;
};

template <bool PEEPHOLE, bool KEEP>
void gates_forward(const GatePlanes& p) {
    for (long q = 0; q < p.vectors * LANES; q += LANES) {
        vec c = load(p.c + q), i = load(p.gates[I] + q), f = load(p.gates[F] + q);
        vec g = tanh(load(p.gates[G] + q)), o = load(p.gates[O] + q), mask = load(p.mask + q);
        if (PEEPHOLE) i += load(p.peephole[0] + q) * c, f += load(p.peephole[1] + q) * c;
        i = sigmoid(i), f = sigmoid(f);
        c = masked(f * c + i * g, mask);
        if (PEEPHOLE) o += load(p.peephole[2] + q) * c;
        o = sigmoid(o);
        store(p.c + q, c);
        store(p.h + q, masked(o * tanh(c), mask));
        if (KEEP) {  // with zeros between, so that equal inputs save equal tensors
            store(p.saved[I] + q, masked(i, mask)), store(p.saved[F] + q, masked(f, mask));
            store(p.saved[G] + q, masked(g, mask)), store(p.saved[O] + q, masked(o, mask));
            store(p.saved[CELL] + q, c);
        }
    }
    if (KEEP && p.vectors * LANES < p.plane)
        for (float* saved : p.saved)
            std::memset(saved + p.vectors * LANES, 0,
                        (p.plane - p.vectors * LANES) * sizeof(float));
}

struct LSTMForward {
    const float *const *inputs, *const *hidden, *const *cell;
    const float *const *w_in, *const *w_rec, *const *bias, *const *peephole;
    const bool *reset, *active;
    float *const *outputs, *const *last_hidden, *const *last_cell, *const *saved;
};

inline bool any(const bool* flags, long n, bool value) {
    return flags && std::find(flags, flags + n, value) != flags + n;
}

// Planes of `count` channels from or to a tensor (samples, count, H, W).
inline void insert_all(const Grid& g, float* planes, long stride, const float* dense, long count,
                       long n, long repeat = 1) {
    for (long c = 0; c < count; c++)
        insert(g, planes + c * stride, dense + c * g.H * g.W, n, repeat * count * g.H * g.W);
}
inline void extract_all(const Grid& g, const float* planes, long stride, float* dense, long count,
                        long n) {
    for (long c = 0; c < count; c++)
        extract(g, planes + c * stride, dense + c * g.H * g.W, n, count * g.H * g.W);
}

// One thread's work on one level, forward.
struct LSTMForwardRun {
    const Call& call;
    const LSTMForward& p;
    const Level& level;
    const Grid& fine;
    long i, C, sample;  // level, channels, floats of a sample
    Saved saved;
    float *x, *x_coarse, *work, *gates, *h, *c, *mask, *kept_h, *kept_c, *peephole;

    LSTMForwardRun(const LSTMForward& p, const Level& level)
        : call(level.call), p(p), level(level), fine(level.fine), i(level.index), C(level.Ch),
          sample(C * fine.H * fine.W),
          saved(level, C, call.flags & SAVE ? p.saved[i] : nullptr) {
        Scratch& memory = scratch();
        memory.begin();
        x = memory.take_zeros(fine.room(level.Cf));
        x_coarse = memory.take_zeros(level.coarse.room(level.Cu));
        work = memory.take(level.convolution->forward_room());
        gates = memory.take(fine.room(level.O));
        h = x + fine.front + (level.Cs + level.Cp) * fine.stride;
        c = memory.take_zeros(fine.room(C));
        mask = memory.take(fine.room(1));
        kept_h = memory.take(p.active ? fine.room(C) : 0);
        kept_c = memory.take(p.active ? fine.room(C) : 0);
        peephole = memory.take_zeros(p.peephole ? fine.room(3 * C) : 0);
        if (p.peephole)
            insert_all(fine, peephole, fine.stride, p.peephole[i], 3 * C, level.group, 0);
    }

    // All time steps of n sequences.
    void run(long first, long n, long group) {
        make_mask(fine, mask, n, nullptr);
        insert_all(fine, h, fine.stride, p.hidden[i] + first * sample, C, n);
        insert_all(fine, c, fine.stride, p.cell[i] + first * sample, C, n);
        for (long t = 0; t < call.time; t++) {
            long at = t * call.batch + first;
            if (p.reset && any(p.reset + at, n, true)) {
                clear_samples(fine, h, C, fine.stride, n, p.reset + at, true);
                clear_samples(fine, c, C, fine.stride, n, p.reset + at, true);
            }
            const bool* active = p.active && any(p.active + at, n, false) ? p.active + at : nullptr;
            if (active) {
                copy_samples(fine, h, fine.stride, kept_h, fine.stride, C, n, active, false);
                copy_samples(fine, c, fine.stride, kept_c, fine.stride, C, n, active, false);
            }
            level.gather(p.inputs, at, n, x, x_coarse);
            level.convolution->forward(x, x_coarse, p.bias[i], PLAIN, work, gates, n);
            for (long channel = 0; channel < C; channel++) update(group, t, channel, n);
            float* output = p.outputs[i] + at * sample;
            extract_all(fine, h, fine.stride, output, C, n);
            if (active) keep(group, t, n, active, output);
            if (saved.data && saved.kinds > HIDDEN)
                for (long channel = 0; channel < C; channel++)
                    std::memcpy(saved.at(group, t, HIDDEN) + channel * saved.plane,
                                h + channel * fine.stride, saved.plane * sizeof(float));
        }
        extract_all(fine, h, fine.stride, p.last_hidden[i] + first * sample, C, n);
        extract_all(fine, c, fine.stride, p.last_cell[i] + first * sample, C, n);
    }

    void update(long group, long t, long channel, long n) {
        GatePlanes g;
        for (long k = 0; k < 4; k++)
            g.gates[k] = gates + fine.front + (k * C + channel) * fine.stride;
        for (long k = 0; k < 3; k++) g.peephole[k] = peephole + (k * C + channel) * fine.stride;
        for (long k = 0; k < 5; k++)
            g.saved[k] = saved.data ? saved.at(group, t, k) + channel * saved.plane : nullptr;
        g.mask = mask;
        g.c = c + channel * fine.stride;
        g.h = h + channel * fine.stride;
        g.vectors = fine.vectors(n);
        g.plane = saved.plane;
        if (p.peephole)
            saved.data ? gates_forward<true, true>(g) : gates_forward<true, false>(g);
        else
            saved.data ? gates_forward<false, true>(g) : gates_forward<false, false>(g);
    }

    // Sequences that sit this step out get their state back and give zeros.
    void keep(long group, long t, long n, const bool* active, float* output) {
        copy_samples(fine, kept_h, fine.stride, h, fine.stride, C, n, active, false);
        copy_samples(fine, kept_c, fine.stride, c, fine.stride, C, n, active, false);
        if (saved.data)
            copy_samples(fine, c, fine.stride, saved.at(group, t, CELL), saved.plane, C, n, active,
                         false);
        for (long s = 0; s < n; s++)
            if (!active[s]) std::memset(output + s * sample, 0, sample * sizeof(float));
    }
};

inline Level lstm_level(const Call& call, long i) {
    return Level(call, i, call.out[i].C, 4 * call.out[i].C);
}

// All levels over all time steps; their weights are packed.
template <class Levels>
void lstm_forward(const Call& call, const Levels& levels, const LSTMForward& p) {
    for (const Level& level : levels) {
        long i = level.index, C = level.Ch;
        expect_large(p.outputs[i], call.time * call.batch * C * level.fine.H * level.fine.W);
        if (call.flags & SAVE) {
            Saved saved(level, C, p.saved[i]);
            expect_large(saved.data,
                         saved.at(call.parts * level.groups_in_part, 0, 0) - saved.data);
        }
    }
    parallel(call.threads, call.parts, [&](long part) {
        for (const Level& level : levels) {
            LSTMForwardRun run(p, level);
            Part(call, part).each_group(
                level.group, level.groups_in_part,
                [&](long first, long n, long group) { run.run(first, n, group); });
        }
    });
}

inline void lstm_forward(const Call& call, const LSTMForward& p) {
    std::vector<Level> levels;
    for (long i = 0; i < call.outputs; i++) {
        levels.push_back(lstm_level(call, i));
        levels.back().convolution->pack_forward(p.w_in[i], p.w_rec[i]);
    }
    lstm_forward(call, levels, p);
}

}  // namespace mg
