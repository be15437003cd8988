// Back-propagation through time of the MG-conv-LSTM.
#pragma once

#include "lstm.h"

namespace mg {

struct LSTMBackward {
    const float *const *inputs, *const *hidden, *const *cell, *const *w_in, *const *w_rec;
    const float* const* peephole;
    const bool *reset, *active;
    const float *const *outputs, *const *saved;
    const float *const *grads, *const *grads_hidden, *const *grads_cell;
    // Null entries: not wanted.
    float *const *d_inputs, *const *d_hidden, *const *d_cell;
    float *const *d_w_in, *const *d_w_rec, *const *d_bias, *const *d_peephole;
};

// From dh and dc of one channel to the gradients of its gates and of c one step before.
struct GateGradients {
    const float* saved[5];
    const float *before, *peephole[3], *mask, *dh;
    float *dc, *d_gates[4], *d_peephole[3];
    float* d_bias[4];
    long vectors;
};

template <bool PEEPHOLE>
void gates_backward(const GateGradients& p) {
    vec total[4] = {};
    for (long q = 0; q < p.vectors * LANES; q += LANES) {
        vec i = load(p.saved[I] + q), f = load(p.saved[F] + q), g = load(p.saved[G] + q);
        vec o = load(p.saved[O] + q), c = load(p.saved[CELL] + q), before = load(p.before + q);
        vec dh = load(p.dh + q), dc = load(p.dc + q), mask = load(p.mask + q);
        vec bent = tanh(c);
        vec d_o = masked(dh * bent * (o - o * o), mask);
        dc += dh * (o - o * bent * bent);
        if (PEEPHOLE) dc += d_o * load(p.peephole[2] + q);
        vec d_i = masked(dc * g * (i - i * i), mask);
        vec d_f = masked(dc * before * (f - f * f), mask);
        vec d_g = masked(dc * (i - i * g * g), mask);
        dc *= f;
        if (PEEPHOLE) {
            dc += d_i * load(p.peephole[0] + q) + d_f * load(p.peephole[1] + q);
            store(p.d_peephole[0] + q, load(p.d_peephole[0] + q) + d_i * before);
            store(p.d_peephole[1] + q, load(p.d_peephole[1] + q) + d_f * before);
            store(p.d_peephole[2] + q, load(p.d_peephole[2] + q) + d_o * c);
        }
        store(p.dc + q, dc);
        store(p.d_gates[I] + q, d_i), store(p.d_gates[F] + q, d_f);
        store(p.d_gates[G] + q, d_g), store(p.d_gates[O] + q, d_o);
        total[I] += d_i, total[F] += d_f, total[G] += d_g, total[O] += d_o;
    }
    for (int k = 0; k < 4; k++) *p.d_bias[k] += sum(total[k]);
}

// One thread's work on one level, backward.
struct LSTMBackwardRun {
    const Call& call;
    const LSTMBackward& p;
    const Level& level;
    const Grid& fine;
    long i, C, sample;
    Saved saved;
    float *x, *x_coarse, *h, *before, *d_gates, *work, *dx, *dx_coarse, *dh, *dc, *mask;
    float *kept_h, *kept_c, *peephole, *d_peephole, *dw, *d_peephole_sum;
    bool to_weights;
    long held = 0;  // samples of later steps that lie in x, x_coarse and d_gates already

    // `first_fine`: fine channels from there on get a gradient.
    LSTMBackwardRun(const LSTMBackward& p, const Level& level, long first_fine, float* dw,
                    float* d_peephole_sum)
        : call(level.call), p(p), level(level), fine(level.fine), i(level.index), C(level.Ch),
          sample(C * fine.H * fine.W), saved(level, C, const_cast<float*>(p.saved[i])), dw(dw),
          d_peephole_sum(d_peephole_sum),
          to_weights(p.d_w_in[i] || p.d_w_rec[i] || p.d_bias[i]) {
        Scratch& memory = scratch();
        memory.begin();
        const Grid& coarse = level.coarse;
        x = memory.take_zeros(fine.room(level.Cf));
        h = x + fine.front + (level.Cs + level.Cp) * fine.stride;
        x_coarse = memory.take_zeros(coarse.room(level.Cu));
        before = memory.take_zeros(fine.room(C));
        d_gates = memory.take_zeros(fine.room(level.O));
        work = memory.take_zeros(level.convolution->backward_room());
        dx = memory.take_zeros(fine.room(level.Cf));
        dx_coarse = memory.take(coarse.room(level.Cu));
        dh = dx + fine.front + (level.Cs + level.Cp - first_fine) * fine.stride;
        dc = memory.take_zeros(fine.room(C));
        mask = memory.take(fine.room(1));
        kept_h = memory.take(p.active ? fine.room(C) : 0);
        kept_c = memory.take(p.active ? fine.room(C) : 0);
        peephole = memory.take_zeros(p.peephole ? fine.room(3 * C) : 0);
        d_peephole = memory.take_zeros(p.peephole ? fine.room(3 * C) : 0);
        if (p.peephole)
            insert_all(fine, peephole, fine.stride, p.peephole[i], 3 * C, level.group, 0);
    }

    // All time steps of n sequences, the last first.
    void run(long first, long n, long group) {
        make_mask(fine, mask, n, nullptr);
        insert_all(fine, dh, fine.stride, p.grads_hidden[i] + first * sample, C, n);
        insert_all(fine, dc, fine.stride, p.grads_cell[i] + first * sample, C, n);
        for (long t = call.time - 1; t >= 0; t--) step(group, t, first, n);
        if (p.d_hidden[i])
            extract_all(fine, dh, fine.stride, p.d_hidden[i] + first * sample, C, n);
        if (p.d_cell[i]) extract_all(fine, dc, fine.stride, p.d_cell[i] + first * sample, C, n);
        if (p.peephole) collect_peephole(n);
    }

    void step(long group, long t, long first, long n) {
        long at = t * call.batch + first;
        const bool* reset = p.reset && any(p.reset + at, n, true) ? p.reset + at : nullptr;
        const bool* active = p.active && any(p.active + at, n, false) ? p.active + at : nullptr;
        if (active) {
            make_mask(fine, mask, n, active);
            copy_samples(fine, dh, fine.stride, kept_h, fine.stride, C, n, active, false);
            copy_samples(fine, dc, fine.stride, kept_c, fine.stride, C, n, active, false);
        }
        const float* grad = p.grads[i] + at * sample;
        for (long c = 0; c < C; c++)
            insert_added(fine, dh + c * fine.stride, grad + c * fine.H * fine.W, n, sample);
        long stride = fine.stride;
        const float* cell = before;
        if (t > 0 && !reset)
            cell = saved.at(group, t - 1, CELL), stride = saved.plane;
        else
            state_before(group, t, first, n, reset);
        if (!held && n < level.steps * level.group)  // nothing may remain behind the last sample
            std::memset(d_gates, 0, fine.room(level.O) * sizeof(float));
        for (long c = 0; c < C; c++) update(group, t, c, n, cell + c * stride);
        level.gather(p.inputs, at, n, x + held * fine.sample,
                     x_coarse + held * level.coarse.sample);
        hidden_before(group, t, first, n, reset);
        bool full = level.steps == 1 || held + 2 * n > level.steps * level.group || t == 0;
        level.convolution->backward(x, x_coarse, d_gates, work, full && to_weights ? dw : nullptr,
                                    dx, dx_coarse, n, held);
        held = full ? 0 : held + n;
        level.scatter(p.inputs, p.d_inputs, at, n, dx, dx_coarse);
        if (active) {
            copy_samples(fine, kept_h, fine.stride, dh, fine.stride, C, n, active, false);
            copy_samples(fine, kept_c, fine.stride, dc, fine.stride, C, n, active, false);
            make_mask(fine, mask, n, nullptr);
        }
        if (reset) {
            clear_samples(fine, dh, C, fine.stride, n, reset, true);
            clear_samples(fine, dc, C, fine.stride, n, reset, true);
        }
    }

    // c before step t, in scratch.
    void state_before(long group, long t, long first, long n, const bool* reset) {
        if (t == 0)
            insert_all(fine, before, fine.stride, p.cell[i] + first * sample, C, n);
        else
            for (long c = 0; c < C; c++)
                std::memcpy(before + c * fine.stride,
                            saved.at(group, t - 1, CELL) + c * saved.plane,
                            fine.vectors(n) * sizeof(vec));
        if (reset) clear_samples(fine, before, C, fine.stride, n, reset, true);
    }

    // h before step t, among the inputs of the convolution.
    void hidden_before(long group, long t, long first, long n, const bool* reset) {
        float* h = this->h + held * fine.sample;
        if (t == 0)
            insert_all(fine, h, fine.stride, p.hidden[i] + first * sample, C, n);
        else if (saved.kinds <= HIDDEN)
            insert_all(fine, h, fine.stride,
                       p.outputs[i] + ((t - 1) * call.batch + first) * sample, C, n);
        else
            for (long c = 0; c < C; c++)
                std::memcpy(h + c * fine.stride, saved.at(group, t - 1, HIDDEN) + c * saved.plane,
                            fine.vectors(n) * sizeof(vec));
        if (reset) clear_samples(fine, h, C, fine.stride, n, reset, true);
    }

    void update(long group, long t, long channel, long n, const float* cell) {
        GateGradients g;
        for (long k = 0; k < 5; k++) g.saved[k] = saved.at(group, t, k) + channel * saved.plane;
        for (long k = 0; k < 4; k++) {
            g.d_gates[k] = d_gates + fine.front + (k * C + channel) * fine.stride +
                           held * fine.sample;
            g.d_bias[k] = level.bias_part(dw) + k * C + channel;
        }
        for (long k = 0; k < 3; k++) {
            g.peephole[k] = peephole + (k * C + channel) * fine.stride;
            g.d_peephole[k] = d_peephole + (k * C + channel) * fine.stride;
        }
        g.before = cell;
        g.mask = mask;
        g.dh = dh + channel * fine.stride;
        g.dc = dc + channel * fine.stride;
        g.vectors = fine.vectors(n);
        p.peephole ? gates_backward<true>(g) : gates_backward<false>(g);
    }

    // Peepholes are shared by the samples of the group: add theirs up, and begin anew.
    void collect_peephole(long n) {
        for (long c = 0; c < 3 * C; c++)
            for (long s = 0; s < n; s++)
                extract_added(fine, d_peephole + c * fine.stride + s * fine.sample,
                              d_peephole_sum + c * fine.H * fine.W, 1, 0);
        std::memset(d_peephole, 0, fine.room(3 * C) * sizeof(float));
    }
};

// The gradient of a weight is a sum over positions. Where a step has few of them, adding the sum to
// what is there already costs more than the sum: several steps are then summed at once.
inline Level lstm_backward_level(const Call& call, long i) {
    const long enough = 32;  // vectors
    Level level = lstm_level(call, i);
    long steps = std::min(call.time, enough / level.fine.vectors(level.group));
    if (steps < 2 || Winograd::wins(level, call.kernel)) return level;
    return Level(call, i, level.Ch, level.O, steps);
}

inline void lstm_backward(const Call& call, const LSTMBackward& p) {
    expect_large_inputs(call, p.d_inputs);
    std::vector<Level> levels;
    std::vector<long> first_fine, cells;
    std::vector<std::vector<float>> dw, d_peephole;
    auto wanted = [&](int source) { return source >= 0 && p.d_inputs[source]; };
    for (long i = 0; i < call.outputs; i++) {
        levels.push_back(lstm_backward_level(call, i));
        Level& level = levels.back();
        bool to_fine = wanted(level.same) || wanted(level.pool);
        first_fine.push_back(to_fine ? 0 : level.Cs + level.Cp);
        level.convolution->pack_backward(p.w_in[i], p.w_rec[i], first_fine[i], wanted(level.up));
        cells.push_back(p.peephole ? 3 * level.Ch * level.fine.H * level.fine.W : 0);
        dw.emplace_back(call.parts * level.gradient_size());
        d_peephole.emplace_back(call.parts * cells[i]);
    }
    parallel(call.threads, call.parts, [&](long part) {
        for (const Level& level : levels) {
            long i = level.index;
            LSTMBackwardRun run(p, level, first_fine[i], &dw[i][part * level.gradient_size()],
                                d_peephole[i].data() + part * cells[i]);
            Part(call, part).each_group(
                level.group, level.groups_in_part,
                [&](long first, long n, long group) { run.run(first, n, group); });
        }
    });
    for (long i = 0; i < call.outputs; i++) {
        levels[i].unpack_gradients(dw[i].data(), p.d_w_in[i], p.d_w_rec[i], p.d_bias[i]);
        if (!p.peephole || !p.d_peephole[i]) continue;
        std::memset(p.d_peephole[i], 0, cells[i] * sizeof(float));
        for (long part = 0; part < call.parts; part++)
            for (long j = 0; j < cells[i]; j++)
                p.d_peephole[i][j] += d_peephole[i][part * cells[i] + j];
    }
}

}  // namespace mg
