// One level of a layer in numbers: where its inputs come from, its channels and its grids.
#pragma once

#include "gemm.h"
#include "grid.h"

namespace mg {

struct Shape {
    long C, H, W;
};

// The numbers of a call, as Python hands them over.
struct Call {
    long dims, kernel, time, batch, lowest_in, inputs, lowest_out, outputs, threads, flags, parts;
    const Shape* in;
    const Shape* out;
    const int64_t* group;  // samples that are stacked, for every output level

    explicit Call(const int64_t* meta) {
        dims = meta[0], kernel = meta[1], time = meta[2], batch = meta[3];
        lowest_in = meta[4], inputs = meta[5], lowest_out = meta[6], outputs = meta[7];
        threads = meta[8], flags = meta[9], parts = meta[10];
        static_assert(sizeof(Shape) == 3 * sizeof(int64_t), "shapes are read as they come");
        in = (const Shape*)(meta + 11);
        out = in + inputs;
        group = (const int64_t*)(out + outputs);
    }
    int input_at(long level) const {
        long i = level - lowest_in;
        return 0 <= i && i < inputs ? int(i) : -1;
    }
};

struct Geometry {
    long index, group, steps;         // output level; samples, and their steps, that are stacked
    int up, same, pool;               // which input feeds it, or -1
    long Cu = 0, Cs = 0, Cp = 0, Ch;  // channels from each, and of the recurrence
    long Cin, Cf, O;                  // read from below; on the fine grid; written
    long ph, pw, tall, taps;
    Grid fine, coarse;

    // `hidden` channels of recurrence (or 0), `written` channels.
    Geometry(const Call& call, long index, long hidden, long written, long steps)
        : index(index), group(call.group[index]), steps(steps), Ch(hidden), O(written),
          ph(call.dims == 2 ? call.kernel / 2 : 0), pw(call.kernel / 2), tall(call.dims == 2) {
        long level = call.lowest_out + index;
        up = call.input_at(level - 1), same = call.input_at(level), pool = call.input_at(level + 1);
        if (up >= 0) Cu = call.in[up].C;
        if (same >= 0) Cs = call.in[same].C;
        if (pool >= 0) Cp = call.in[pool].C;
        Cin = Cu + Cs + Cp, Cf = Cs + Cp + Ch;
        taps = (2 * ph + 1) * (2 * pw + 1);
        const Shape& shape = call.out[index];
        fine = Grid(shape.H, shape.W, ph, pw, steps * group);
        if (up >= 0)
            coarse = Grid(call.in[up].H, call.in[up].W, (ph + 1) / 2, (pw + 1) / 2, steps * group);
    }

    // Row of the weights of output o that begins with fine channel c: taps in a row.
    const float* weights(const float* input, const float* hidden, long o, long c) const {
        return c < Cs + Cp ? input + (o * Cin + Cu + c) * taps
                           : hidden + (o * Ch + c - Cs - Cp) * taps;
    }
    // The same place in the gradients; null: not wanted.
    float* weights(float* input, float* hidden, long o, long c) const {
        if (!(c < Cs + Cp ? input : hidden)) return nullptr;
        return const_cast<float*>(weights((const float*)input, (const float*)hidden, o, c));
    }
};

// How the convolution of a level is done. Planes x [same, pooled, hidden] and x_coarse hold the
// inputs, out or dy the outputs or their gradients, for n samples; `work` is scratch memory, at
// first zero, that nobody else writes to.
struct Convolution {
    virtual ~Convolution() = default;
    // weights (O, Cin, taps) and, with a recurrence, (O, Ch, taps)
    virtual void pack_forward(const float* input, const float* hidden) = 0;
    virtual long forward_room() const = 0;
    virtual void forward(const float* x, const float* x_coarse, const float* bias, Finish finish,
                         float* work, float* out, long n) const = 0;

    // For the gradients of fine channels from `first` on, and (`coarse_too`) of the coarse ones.
    virtual void pack_backward(const float* input, const float* hidden, long first,
                               bool coarse_too) = 0;
    virtual long backward_room() const = 0;
    // Stores dx[c - first] and dx_coarse of n samples, of which the first lies at `at` in the other
    // planes, behind those of later steps; adds to dw (null: not wanted, or not yet) what all of them
    // have to add. dy is zero between grids.
    virtual void backward(const float* x, const float* x_coarse, const float* dy, float* work,
                          float* dw, float* dx, float* dx_coarse, long n, long at = 0) const = 0;
    virtual long gradient_size() const = 0;
    // From dw to the layout of the weights; null: not wanted.
    virtual void unpack(const float* dw, float* input, float* hidden) const = 0;
};

}  // namespace mg
