// One level of a layer: its inputs gathered from the levels below, its convolution, and the way
// of gradients back to those levels.
#pragma once

#include <memory>
#include <vector>

#include "narrow.h"
#include "threads.h"
#include "winograd.h"

namespace mg {

// A call's samples are dealt out in parts; each part goes through all levels by itself, so there
// is nothing to wait for in between. The parts do not depend on the threads, nor do the numbers.
struct Part {
    long first, last, index;
    Part(const Call& call, long index)
        : first(call.batch * index / call.parts), last(call.batch * (index + 1) / call.parts),
          index(index) {}

    // body(first sample, samples, number of the group) for every group of stacked samples.
    template <class Body>
    void each_group(long group, long groups_in_part, Body&& body) const {
        long number = index * groups_in_part;
        for (long at = first; at < last; at += group)
            body(at, std::min(group, last - at), number++);
    }
};

struct Level : Geometry {
    const Call& call;
    long groups_in_part;
    std::unique_ptr<Convolution> convolution;

    Level(const Call& call, long index, long hidden, long written, long steps = 1)
        : Geometry(call, index, hidden, written, steps), call(call),
          groups_in_part(((call.batch + call.parts - 1) / call.parts + group - 1) / group) {
        if (Winograd::wins(*this, call.kernel))
            convolution = std::make_unique<Winograd>(*this);
        else if (Narrow::wins(*this))
            convolution = std::make_unique<Narrow>(*this);
        else
            convolution = std::make_unique<Direct>(*this);
    }

    // Floats of a gradient as accumulated: the weights', then the bias [o].
    long gradient_size() const { return round_up(convolution->gradient_size() + O, 16); }
    float* bias_part(float* dw) const { return dw + convolution->gradient_size(); }

    // Adds up the parts' gradients, in their order, and lays them out like the weights.
    void unpack_gradients(float* dw, float* input, float* hidden, float* bias) const {
        for (long part = 1; part < call.parts; part++)
            for (long j = 0; j < gradient_size(); j++) dw[j] += dw[part * gradient_size() + j];
        convolution->unpack(dw, input, hidden);
        if (bias) std::memcpy(bias, bias_part(dw), O * sizeof(float));
    }

    // Reads samples first .. first + n from below into planes [same, pooled] and [coarse].
    void gather(const float* const* inputs, long first, long n, float* x, float* x_coarse) const {
        x += fine.front, x_coarse += coarse.front;
        auto each = [&](int source, long C, auto&& body) {
            if (source < 0) return;
            const Shape& s = call.in[source];
            const float* from = inputs[source] + first * s.C * s.H * s.W;
            for (long c = 0; c < C; c++) body(c, from + c * s.H * s.W, s.C * s.H * s.W);
        };
        each(up, Cu, [&](long c, const float* from, long jump) {
            insert(coarse, x_coarse + c * coarse.stride, from, n, jump);
            refuse_infinite(coarse, x_coarse + c * coarse.stride, n);
        });
        each(same, Cs, [&](long c, const float* from, long jump) {
            insert(fine, x + c * fine.stride, from, n, jump);
        });
        each(pool, Cp, [&](long c, const float* from, long jump) {
            insert_pooled(fine, x + (Cs + c) * fine.stride, from, n, jump, tall);
        });
    }

    // Adds (or, as the first reader of a level, stores) planes dx [same, pooled] and dx_coarse
    // into the inputs' gradients. Null: not wanted.
    void scatter(const float* const* inputs, float* const* grads, long first, long n,
                 const float* dx, const float* dx_coarse) const {
        auto each = [&](int source, long C, auto&& body) {
            if (source < 0 || !grads[source]) return;
            const Shape& s = call.in[source];
            long jump = s.C * s.H * s.W, level = call.lowest_in + source;
            bool add = index > std::max<long>(level - 1 - call.lowest_out, 0);
            for (long c = 0; c < C; c++)
                body(c, first * jump + c * s.H * s.W, jump, add, grads[source]);
        };
        each(same, Cs, [&](long c, long at, long jump, bool add, float* to) {
            const float* from = dx + fine.front + c * fine.stride;
            (add ? extract_added : extract)(fine, from, to + at, n, jump);
        });
        each(pool, Cp, [&](long c, long at, long jump, bool add, float* to) {
            const float* from = dx + fine.front + (Cs + c) * fine.stride;
            (add ? extract_unpooled<true> : extract_unpooled<false>)(
                fine, from, inputs[pool] + at, to + at, n, jump, tall);
        });
        each(up, Cu, [&](long c, long at, long jump, bool add, float* to) {
            const float* from = dx_coarse + coarse.front + c * coarse.stride;
            (add ? extract_added : extract)(coarse, from, to + at, n, jump);
        });
    }
};

}  // namespace mg
