// Planes: how grids lie in scratch memory, and the moves between them and plain tensors.
//
// A plane holds one channel of several samples, stacked as a tall image: rows of W values and `pw`
// zeros (the right pad of a row is the left pad of the next), `ph` rows of zeros after each
// sample, and zeros before and after, so that every tap of every position is an address in it.
#pragma once

#include <algorithm>
#include <type_traits>

#include "simd.h"

namespace mg {

struct Grid {
    long H = 0, W = 0, ph = 0, pw = 0;
    long pitch = 0;    // from row to row
    long sample = 0;   // from sample to sample
    long front = 0;    // zeros before the first position
    long stride = 0;   // from plane to plane

    Grid() = default;
    Grid(long H, long W, long ph, long pw, long samples) : H(H), W(W), ph(ph), pw(pw) {
        pitch = W + pw;
        sample = (H + ph) * pitch;
        long guard = ph * pitch + pw;
        front = round_up(guard, LANES);
        long size = round_up(front + round_up(samples * sample, LANES) + guard, LANES) + 2 * LANES;
        stride = (size / LANES) % 2 ? size : size + LANES;  // odd: planes spread over cache sets
    }
    // Positions from the first to the last of a sample.
    long extent() const { return sample - ph * pitch - pw; }
    // Vectors of positions that cover so many samples.
    long vectors(long samples) const {
        return ((samples - 1) * sample + extent() + LANES - 1) / LANES;
    }
    // Floats for a number of planes, and for vectors that overrun the last row of the last one; the
    // first position of plane c is at front + c * stride.
    long room(long planes) const { return planes ? planes * stride + 4 * LANES : 0; }
};

// Calls body(std::integral_constant<long, W>) with the width as a constant where it is a usual
// one, so that rows are copied by a few moves instead of a call; 0 stands for any width.
template <class Body>
inline void with_width(long W, Body&& body) {
    switch (W) {
        case 3: return body(std::integral_constant<long, 3>());
        case 6: return body(std::integral_constant<long, 6>());
        case 12: return body(std::integral_constant<long, 12>());
        case 24: return body(std::integral_constant<long, 24>());
        case 48: return body(std::integral_constant<long, 48>());
        default: return body(std::integral_constant<long, 0>());
    }
}

// For every row of `samples` samples: body(offset in the plane, offset in the tensor, width). In
// the tensor a row advances by `row` floats and a sample by `jump`.
template <class Body>
inline void each_row(const Grid& g, long samples, long jump, long row, Body&& body) {
    with_width(g.W, [&](auto constant) {
        const long W = constant() ? constant() : g.W;
        for (long s = 0; s < samples; s++)
            for (long y = 0; y < g.H; y++)
                body(s * g.sample + y * g.pitch, s * jump + y * row, W);
    });
}

// The same, with rows cut into vectors: body(lanes, offset in the plane, offset in the tensor),
// where the tensor advances by `step` floats for every one of the plane.
template <class Body>
inline void each_chunk(const Grid& g, long samples, long jump, long row, long step, Body&& body) {
    each_row(g, samples, jump, row, [&](long p, long d, long W) {
        long x = 0;
        if constexpr (LANES >= 16)
            for (; x + 16 <= W; x += 16) body(Lanes<16>(), p + x, d + step * x);
        if constexpr (LANES >= 8)
            for (; x + 8 <= W; x += 8) body(Lanes<8>(), p + x, d + step * x);
        for (; x + 4 <= W; x += 4) body(Lanes<4>(), p + x, d + step * x);
        for (; x < W; x++) body(Lanes<1>(), p + x, d + step * x);
    });
}

inline void insert(const Grid& g, float* plane, const float* dense, long samples, long jump) {
    each_row(g, samples, jump, g.W, [=](long p, long d, long W) {
        std::memcpy(plane + p, dense + d, W * sizeof(float));
    });
}

// Thrown where sums of weights stand for the weights: inf * (a + b) is not inf * a + inf * b.
struct Infinite {};

inline void refuse_infinite(const Grid& g, const float* plane, long samples) {
    ivec found{};
    for (long v = 0; v < g.vectors(samples); v++) {
        vec x = load(plane + v * LANES);
        found |= (x == x) & (x - x != 0.0f);
    }
    for (long i = 0; i < LANES; i++)
        if (found[i]) throw Infinite();
}

inline void insert_added(const Grid& g, float* plane, const float* dense, long samples, long jump) {
    each_chunk(g, samples, jump, g.W, 1, [=](auto lanes, long p, long d) {
        using V = lanes_of<lanes()>;
        put<V>(plane + p, get<V>(plane + p) + get<V>(dense + d));
    });
}

// The gradient where the output is positive, else zero.
inline void insert_where_positive(const Grid& g, float* plane, const float* grad,
                                  const float* output, long samples, long jump) {
    each_chunk(g, samples, jump, g.W, 1, [=](auto lanes, long p, long d) {
        using V = lanes_of<lanes()>;
        put<V>(plane + p, get<V>(output + d) > 0.0f ? get<V>(grad + d) : V{});
    });
}

inline void extract(const Grid& g, const float* plane, float* dense, long samples, long jump) {
    each_row(g, samples, jump, g.W, [=](long p, long d, long W) {
        std::memcpy(dense + d, plane + p, W * sizeof(float));
    });
}

inline void extract_added(const Grid& g, const float* plane, float* dense, long samples, long jump) {
    each_chunk(g, samples, jump, g.W, 1, [=](auto lanes, long p, long d) {
        using V = lanes_of<lanes()>;
        put<V>(dense + d, get<V>(dense + d) + get<V>(plane + p));
    });
}

template <class V>
inline V larger(V a, V b) { return (a > b) | (a != a) ? a : b; }  // a NaN wins

// Max pooling by two of a tensor twice as wide and (`tall`) twice as high.
inline void insert_pooled(const Grid& g, float* plane, const float* dense, long samples, long jump,
                          bool tall) {
    const long below = tall ? 2 * g.W : 0;
    each_chunk(g, samples, jump, tall ? 4 * g.W : 2 * g.W, 2, [=](auto lanes, long p, long d) {
        using V = lanes_of<lanes()>;
        V a, b, c, e;
        get_pairs(dense + d, a, b);
        get_pairs(dense + d + below, c, e);
        put<V>(plane + p, larger(larger(a, b), larger(c, e)));
    });
}

// Its gradient: to the first of the largest, zero to the others; added, or stored.
template <bool ADD>
inline void extract_unpooled(const Grid& g, const float* plane, const float* input, float* dense,
                             long samples, long jump, bool tall) {
    const long below = 2 * g.W;
    each_chunk(g, samples, jump, tall ? 4 * g.W : 2 * g.W, 2, [=](auto lanes, long p, long d) {
        using V = lanes_of<lanes()>;
        auto send = [](float* to, V left, V right) {
            V a{}, b{};
            if (ADD) get_pairs(to, a, b);
            put_pairs<V>(to, a + left, b + right);
        };
        const V none{}, grad = get<V>(plane + p);
        V a, b, c, e;
        get_pairs(input + d, a, b);
        if (!tall) return send(dense + d, b > a ? none : grad, b > a ? grad : none);
        get_pairs(input + d + below, c, e);
        V upper = b > a ? b : a, lower = e > c ? e : c;
        V up = lower > upper ? none : grad, down = lower > upper ? grad : none;
        send(dense + d, b > a ? none : up, b > a ? up : none);
        send(dense + d + below, e > c ? none : down, e > c ? down : none);
    });
}

// Four (or in 1D two) planes of the coarse grid, one for each position within a cell of it, to
// one plane of the fine grid, plus a constant. Rows overrun: what they spoil comes later or is pad.
inline void merge(const Grid& fine, const Grid& coarse, const float* parts, long part_stride,
                  long tall, float bias, float* plane, long samples) {
    for (long s = 0; s < samples; s++)
        for (long y = 0; y < coarse.H; y++)
            for (long a = 0; a <= tall; a++) {
                const float* even = parts + 2 * a * part_stride + s * coarse.sample + y * coarse.pitch;
                const float* odd = even + part_stride;
                float* to = plane + s * fine.sample + ((y << tall) + a) * fine.pitch;
                for (long x = 0; x < coarse.W; x += LANES) {
                    vec low, high;
                    interleave(load(even + x), load(odd + x), low, high);
                    store(to + 2 * x, low + bias);
                    store(to + 2 * x + LANES, high + bias);
                }
            }
}

// The reverse. Pads stay zero: lanes behind a row's end are cleared, and rows go in rising order.
inline void split(const Grid& fine, const Grid& coarse, const float* plane, float* parts,
                  long part_stride, long tall, long samples) {
    ivec lane;
    for (long i = 0; i < LANES; i++) lane[i] = int(i);
    for (long s = 0; s < samples; s++)
        for (long y = 0; y < coarse.H; y++)
            for (long a = 0; a <= tall; a++) {
                float* even = parts + 2 * a * part_stride + s * coarse.sample + y * coarse.pitch;
                float* odd = even + part_stride;
                const float* from = plane + s * fine.sample + ((y << tall) + a) * fine.pitch;
                for (long x = 0; x < coarse.W; x += LANES) {
                    vec e, o, inside = (vec)(lane < int(coarse.W - x));
                    deinterleave(load(from + 2 * x), load(from + 2 * x + LANES), e, o);
                    store(even + x, masked(e, inside));
                    store(odd + x, masked(o, inside));
                }
            }
}

// All ones at the positions of the samples whose flag is set (null: all), else zero.
inline void make_mask(const Grid& g, float* mask, long samples, const bool* flags) {
    std::memset(mask, 0, round_up(samples * g.sample, LANES) * sizeof(float));
    for (long s = 0; s < samples; s++)
        if (!flags || flags[s])
            for (long y = 0; y < g.H; y++)
                std::memset(mask + s * g.sample + y * g.pitch, 0xff, g.W * sizeof(float));
}

// Clears (or copies) the samples whose flag equals `when`, from first to last position.
inline void clear_samples(const Grid& g, float* planes, long count, long stride, long samples,
                          const bool* flags, bool when) {
    for (long s = 0; s < samples; s++)
        if (flags[s] == when)
            for (long c = 0; c < count; c++)
                std::memset(planes + c * stride + s * g.sample, 0, g.extent() * sizeof(float));
}

inline void copy_samples(const Grid& g, const float* from, long from_stride, float* to,
                         long to_stride, long count, long samples, const bool* flags, bool when) {
    for (long s = 0; s < samples; s++)
        if (flags[s] == when)
            for (long c = 0; c < count; c++)
                std::memcpy(to + c * to_stride + s * g.sample, from + c * from_stride + s * g.sample,
                            g.extent() * sizeof(float));
}

}  // namespace mg
