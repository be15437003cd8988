// MG-conv: convolution over the gathered levels, bias and ReLU, forward and backward.
#pragma once

#include "level.h"

namespace mg {

enum Flags { WITH_RELU = 1, WITH_RESET = 2, WITH_ACTIVE = 4, WITH_PEEPHOLE = 8, SAVE = 16 };

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

inline Level conv_level(const Call& call, long i) { return Level(call, i, 0, call.out[i].C); }

inline void conv_forward(const Level& level, const ConvForward& p, const Part& part) {
    const Grid &fine = level.fine, &coarse = level.coarse;
    Scratch& memory = scratch();
    memory.begin();
    float* x = memory.take_zeros(fine.room(level.Cf));
    float* x_coarse = memory.take_zeros(coarse.room(level.Cu));
    float* work = memory.take(level.convolution->forward_room());
    float* out = memory.take(fine.room(level.O));
    long i = level.index, area = fine.H * fine.W, jump = level.O * area;
    Finish finish = level.call.flags & WITH_RELU ? RELU : PLAIN;
    part.each_group(level.group, level.groups_in_part, [&](long first, long n, long) {
        level.gather(p.inputs, first, n, x, x_coarse);
        level.convolution->forward(x, x_coarse, p.biases[i], finish, work, out, n);
        for (long o = 0; o < level.O; o++)
            extract(fine, out + fine.front + o * fine.stride, p.outputs[i] + first * jump + o * area,
                    n, jump);
    });
}

// All levels, whose weights are packed.
template <class Levels>
void conv_forward(const Call& call, const Levels& levels, const ConvForward& p) {
    for (const Level& level : levels)
        expect_large(p.outputs[level.index],
                     call.batch * level.O * level.fine.H * level.fine.W);
    parallel(call.threads, call.parts, [&](long part) {
        for (const Level& level : levels) conv_forward(level, p, Part(call, part));
    });
}

inline void conv_forward(const Call& call, const ConvForward& p) {
    std::vector<Level> levels;
    for (long i = 0; i < call.outputs; i++) {
        levels.push_back(conv_level(call, i));
        levels.back().convolution->pack_forward(p.weights[i], nullptr);
    }
    conv_forward(call, levels, p);
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

// Adds to the part's dw.
inline void conv_backward(const Level& level, const ConvBackward& p, const Part& part, float* dw) {
    const Grid &fine = level.fine, &coarse = level.coarse;
    Scratch& memory = scratch();
    memory.begin();
    float* x = memory.take_zeros(fine.room(level.Cf));
    float* x_coarse = memory.take_zeros(coarse.room(level.Cu));
    float* dy = memory.take_zeros(fine.room(level.O));
    float* work = memory.take_zeros(level.convolution->backward_room());
    float* dx = memory.take(fine.room(level.Cf));
    float* dx_coarse = memory.take(coarse.room(level.Cu));
    long i = level.index, area = fine.H * fine.W, jump = level.O * area;
    bool to_weights = p.d_weights[i] || p.d_biases[i];
    part.each_group(level.group, level.groups_in_part, [&](long first, long n, long) {
        if (n < level.group)  // nothing of the group before may remain behind the last
            std::memset(dy, 0, fine.room(level.O) * sizeof(float));
        for (long o = 0; o < level.O; o++) {
            float* plane = dy + fine.front + o * fine.stride;
            const float* grad = p.grads[i] + first * jump + o * area;
            if (level.call.flags & WITH_RELU)
                insert_where_positive(fine, plane, grad, p.outputs[i] + first * jump + o * area, n,
                                      jump);
            else
                insert(fine, plane, grad, n, jump);
            vec total{};
            for (long v = 0; v < fine.vectors(n); v++) total += load(plane + v * LANES);
            level.bias_part(dw)[o] += sum(total);
        }
        if (to_weights) level.gather(p.inputs, first, n, x, x_coarse);
        level.convolution->backward(x, x_coarse, dy, work, to_weights ? dw : nullptr, dx, dx_coarse,
                                    n);
        level.scatter(p.inputs, p.d_inputs, first, n, dx, dx_coarse);
    });
}

inline void conv_backward(const Call& call, const ConvBackward& p) {
    expect_large_inputs(call, p.d_inputs);
    std::vector<Level> levels;
    std::vector<std::vector<float>> dw;
    auto wanted = [&](int source) { return source >= 0 && p.d_inputs[source]; };
    for (long i = 0; i < call.outputs; i++) {
        levels.push_back(conv_level(call, i));
        Level& level = levels.back();
        bool to_fine = wanted(level.same) || wanted(level.pool);
        level.convolution->pack_backward(p.weights[i], nullptr, to_fine ? 0 : level.Cf,
                                         wanted(level.up));
        dw.emplace_back(call.parts * level.gradient_size());
    }
    parallel(call.threads, call.parts, [&](long part) {
        for (const Level& level : levels)
            conv_backward(level, p, Part(call, part),
                          &dw[level.index][part * level.gradient_size()]);
    });
    for (long i = 0; i < call.outputs; i++)
        levels[i].unpack_gradients(dw[i].data(), p.d_weights[i], nullptr, p.d_biases[i]);
}

}  // namespace mg
