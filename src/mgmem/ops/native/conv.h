// MG-conv: convolution over the gathered levels, bias and ReLU, forward and backward.
#pragma once

#include "level.h"

namespace mg {

enum Flags { WITH_RELU = 1, WITH_RESET = 2, WITH_ACTIVE = 4, WITH_PEEPHOLE = 8, SAVE = 16 };

// The groups [first, last) of one of `parts` shares.
struct Share {
    long first, last;
    Share(long groups, long parts, long part)
        : first(groups * part / parts), last(groups * (part + 1) / parts) {}
};

// The gradients of the inputs, about to be written.
inline void expect_large_inputs(const Call& call, float* const* grads) {
    for (long i = 0; i < call.inputs; i++)
        expect_large(grads[i],
                     call.time * call.batch * call.in[i].C * call.in[i].H * call.in[i].W);
}

struct ConvForward {
    const float* const* inputs;
    const float* const* weights;
    const float* const* biases;
    float* const* outputs;
};

inline Level conv_level(const Call& call, long i) {
    return Level(call, i, call.batch, 0, call.out[i].C);
}

// One level, whose weights are packed.
inline void conv_forward(const Level& level, const ConvForward& p) {
    const Call& call = level.call;
    long i = level.index, parts = std::max(1L, std::min(call.threads, level.groups));
    expect_large(p.outputs[i], call.batch * level.O * level.fine.H * level.fine.W);
    parallel(int(parts), [&](int part) {
        Share share(level.groups, parts, part);
        Scratch& memory = scratch();
        memory.begin();
        const Grid &fine = level.fine, &coarse = level.coarse;
        float* x = memory.take_zeros(fine.room(level.Cf));
        float* x_coarse = memory.take_zeros(coarse.room(level.Cu));
        float* halves = memory.take(coarse.room(level.up >= 0 ? level.halves * level.O : 0));
        float* out = memory.take(fine.room(level.O));
        long jump = level.O * fine.H * fine.W;
        for (long g = share.first; g < share.last; g++) {
            long first = g * level.group, n = std::min(level.group, call.batch - first);
            level.gather(p.inputs, first, n, x, x_coarse);
            level.forward(x, x_coarse, p.biases[i], call.flags & WITH_RELU ? RELU : PLAIN, halves,
                          out, n);
            for (long o = 0; o < level.O; o++)
                extract(fine, out + fine.front + o * fine.stride,
                        p.outputs[i] + first * jump + o * fine.H * fine.W, n, jump);
        }
    });
}

inline void conv_forward(const Call& call, const ConvForward& p) {
    for (long i = 0; i < call.outputs; i++) {
        Level level = conv_level(call, i);
        level.pack_forward(p.weights[i], nullptr);
        conv_forward(level, p);
    }
}

struct ConvBackward {
    const float* const* inputs;
    const float* const* weights;
    const float* const* outputs;
    const float* const* grads;
    float* const* d_inputs;  // null: not wanted; likewise the next two
    float* const* d_weights;
    float* const* d_biases;
};

inline void conv_backward(const Call& call, const ConvBackward& p) {
    expect_large_inputs(call, p.d_inputs);
    for (long i = 0; i < call.outputs; i++) {
        Level level(call, i, call.batch, 0, call.out[i].C);
        bool to_coarse = level.up >= 0 && p.d_inputs[level.up];
        bool to_fine = (level.same >= 0 && p.d_inputs[level.same]) ||
                       (level.pool >= 0 && p.d_inputs[level.pool]);
        bool to_weights = p.d_weights[i] || p.d_biases[i];
        level.pack_backward(p.weights[i], nullptr, to_fine ? 0 : level.Cf, to_coarse);
        long parts = std::max(1L, std::min(call.threads, level.groups)), size = level.gradient_size();
        std::vector<float> dw(parts * size);
        parallel(int(parts), [&](int part) {
            Share share(level.groups, parts, part);
            Scratch& memory = scratch();
            memory.begin();
            const Grid &fine = level.fine, &coarse = level.coarse;
            float* x = memory.take_zeros(fine.room(level.Cf));
            float* x_coarse = memory.take_zeros(coarse.room(level.Cu));
            float* dy = memory.take_zeros(fine.room(level.O));
            float* halves =
                memory.take_zeros(coarse.room(level.up >= 0 ? level.halves * level.O : 0));
            float* dx = memory.take(fine.room(level.Cf));
            float* dx_coarse = memory.take(coarse.room(level.Cu));
            float* dw_own = &dw[part * size];
            long area = fine.H * fine.W, jump = level.O * area;
            for (long g = share.first; g < share.last; g++) {
                long first = g * level.group, n = std::min(level.group, call.batch - first);
                if (n < level.group)  // nothing of the group before may remain behind the last
                    std::memset(dy, 0, fine.room(level.O) * sizeof(float)),
                        std::memset(halves, 0,
                                    coarse.room(level.up >= 0 ? level.halves * level.O : 0) * 4);
                for (long o = 0; o < level.O; o++) {
                    float* plane = dy + fine.front + o * fine.stride;
                    const float* grad = p.grads[i] + first * jump + o * area;
                    if (call.flags & WITH_RELU)
                        insert_where_positive(fine, plane, grad,
                                              p.outputs[i] + first * jump + o * area, n, jump);
                    else
                        insert(fine, plane, grad, n, jump);
                    vec total{};
                    for (long v = 0; v < fine.vectors(n); v++) total += load(plane + v * LANES);
                    level.bias_part(dw_own)[o] += sum(total);
                }
                if (level.up >= 0) level.split_parts(dy, halves, n);
                if (to_weights) {
                    level.gather(p.inputs, first, n, x, x_coarse);
                    level.weight_gradients(x, x_coarse, dy, halves, n, dw_own);
                }
                if (to_fine) level.backward_fine(dy, dx, n);
                level.scatter(p.inputs, p.d_inputs, first, n, dx, halves, dx_coarse);
            }
        });
        level.unpack_gradients(dw.data(), parts, p.d_weights[i], nullptr, p.d_biases[i]);
    }
}

}  // namespace mg
