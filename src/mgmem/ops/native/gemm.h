// The two inner loops everything is made of. A convolution over planes that are padded and
// flattened is, for every flat position q,
//     out[o][q]  =  sum over r of  w[r][o] * x[offset[r] + q]
// with one r for every input channel and tap, and the gradient of its weights is
//     dw[r][o]   =  sum over q of  dy[o][q] * x[offset[r] + q].
// Lanes run over positions, so any number of channels keeps them full.
#pragma once

#include <algorithm>
#include <utility>

#include "simd.h"

namespace mg {

#define MG_UNROLL _Pragma("GCC unroll 24")

// How many vectors of positions (or offsets, for the weight gradient) go with a block of channels.
constexpr int partner(int block) {
    return block == 0 ? 0 : std::min(ACCUMULATORS / block, 8);
}

// Channels are cut into blocks of nearly equal size: their number, and the size of each.
inline long block_count(long channels) { return (channels + MAX_BLOCK - 1) / MAX_BLOCK; }
inline int block_size(long channels, long count, long index) {
    return int(channels / count + (index < channels % count));
}

enum Finish { PLAIN = 0, RELU = 1 };

struct ConvTile {
    const float* x;
    const int* offsets;
    long terms;
    const float* weights;   // [term][channel of the block]
    const float* bias;      // of the block; null: add to what out holds
    float* out;
    long out_stride;
    Finish finish;
};

template <int NP, int NC>
void conv_tile(const ConvTile& t) {
    vec acc[NC][NP];
    if (t.bias) {
MG_UNROLL
        for (int c = 0; c < NC; c++)
MG_UNROLL
            for (int p = 0; p < NP; p++) acc[c][p] = splat(t.bias[c]);
    } else {
MG_UNROLL
        for (int c = 0; c < NC; c++)
MG_UNROLL
            for (int p = 0; p < NP; p++) acc[c][p] = load(t.out + c * t.out_stride + p * LANES);
    }
    const float* w = t.weights;
    const int* offsets = t.offsets;
    const int* end = offsets + t.terms;
    for (; offsets != end; offsets++, w += NC) {
        const float* x = t.x + *offsets;
        vec in[NP];
MG_UNROLL
        for (int p = 0; p < NP; p++) in[p] = load(x + p * LANES);
MG_UNROLL
        for (int c = 0; c < NC; c++) {
            vec weight = splat(w[c]);
MG_UNROLL
            for (int p = 0; p < NP; p++) acc[c][p] += in[p] * weight;
        }
    }
    if (t.finish == RELU)
MG_UNROLL
        for (int c = 0; c < NC; c++)
MG_UNROLL
            for (int p = 0; p < NP; p++) acc[c][p] = relu(acc[c][p]);
MG_UNROLL
    for (int c = 0; c < NC; c++)
MG_UNROLL
        for (int p = 0; p < NP; p++) store(t.out + c * t.out_stride + p * LANES, acc[c][p]);
}

struct WeightTile {
    const float* x;
    const int* offsets;
    const float* dy;
    long dy_stride;
    long vectors;
    float* dw;      // [offset][channel]
    long dw_stride;
};

template <int NR, int NC>
void weight_tile(const WeightTile& t) {
    vec acc[NR * NC];
MG_UNROLL
    for (int i = 0; i < NR * NC; i++) acc[i] = vec{};
    const float* x[NR];
MG_UNROLL
    for (int r = 0; r < NR; r++) x[r] = t.x + t.offsets[r];
    for (long v = 0; v < t.vectors; v++) {
        vec in[NR];
MG_UNROLL
        for (int r = 0; r < NR; r++) in[r] = load(x[r] + v * LANES);
MG_UNROLL
        for (int c = 0; c < NC; c++) {
            vec d = load(t.dy + c * t.dy_stride + v * LANES);
MG_UNROLL
            for (int r = 0; r < NR; r++) acc[r * NC + c] += in[r] * d;
        }
    }
MG_UNROLL
    for (int r = 0; r < NR; r++) {
        float* dw = t.dw + r * t.dw_stride;
        int c = 0;
MG_UNROLL
        for (; c + 4 <= NC; c += 4) {
            const vec* a = acc + r * NC + c;
            vec4_unaligned* d = (vec4_unaligned*)(dw + c);
            *d += sums(a[0], a[1], a[2], a[3]);
        }
MG_UNROLL
        for (; c < NC; c++) dw[c] += sum(acc[r * NC + c]);
    }
}

// Tables of the tiles for every block size and every remainder of its partner.
template <class Tile>
using TileFunction = void (*)(const Tile&);

template <class Tile>
struct TileTable {
    TileFunction<Tile> at[MAX_BLOCK + 1][9] = {};
};

template <int NC, int... P>
constexpr void fill(TileTable<ConvTile>& conv, TileTable<WeightTile>& weight,
                    std::integer_sequence<int, P...>) {
    ((conv.at[NC][P + 1] = conv_tile<P + 1, NC>, weight.at[NC][P + 1] = weight_tile<P + 1, NC>),
     ...);
}

struct Tables {
    TileTable<ConvTile> conv;
    TileTable<WeightTile> weight;
    Tables() { fill_all(std::make_integer_sequence<int, MAX_BLOCK>()); }
    template <int... C>
    void fill_all(std::integer_sequence<int, C...>) {
        (fill<C + 1>(conv, weight, std::make_integer_sequence<int, partner(C + 1)>()), ...);
    }
};

inline const Tables TABLES;

// matrix [terms][channels] to blocks [block][term][channel of the block].
inline void pack(const float* matrix, long terms, long channels, float* packed) {
    long blocks = block_count(channels), first = 0;
    for (long b = 0; b < blocks; b++) {
        int size = block_size(channels, blocks, b);
        for (long r = 0; r < terms; r++)
            for (int c = 0; c < size; c++) *packed++ = matrix[r * channels + first + c];
        first += size;
    }
}

// out[o][q] for `vectors` vectors of positions; bias null: out is added to.
inline void convolve(const float* x, const int* offsets, long terms, const float* packed,
                     long channels, const float* bias, Finish finish, float* out, long out_stride,
                     long vectors) {
    const long window = 24;  // vectors of positions that share their inputs in the first-level cache
    long blocks = block_count(channels);
    for (long start = 0; start < vectors; start += window) {
        long stop = std::min(start + window, vectors), first = 0;
        const float* weights = packed;
        for (long b = 0; b < blocks; b++) {
            int size = block_size(channels, blocks, b), most = partner(size);
            for (long v = start; v < stop; v += most) {
                int now = int(std::min<long>(most, stop - v));
                TABLES.conv.at[size][now]({x + v * LANES, offsets, terms, weights,
                                           bias ? bias + first : nullptr,
                                           out + first * out_stride + v * LANES, out_stride,
                                           finish});
            }
            weights += terms * size;
            first += size;
        }
    }
}

// dw[r][o] += ...; positions that do not count must hold zeros in dy.
inline void weight_gradient(const float* x, const int* offsets, long terms, const float* dy,
                            long dy_stride, long channels, long vectors, float* dw) {
    const long window = 56;  // so that a block's dy stays in the first-level cache
    long blocks = block_count(channels);
    for (long start = 0; start < vectors; start += window) {
        long now = std::min(window, vectors - start), first = 0;
        for (long b = 0; b < blocks; b++) {
            int size = block_size(channels, blocks, b), most = partner(size);
            for (long r = 0; r < terms; r += most) {
                int count = int(std::min<long>(most, terms - r));
                TABLES.weight.at[size][count]({x + start * LANES, offsets + r,
                                               dy + first * dy_stride + start * LANES, dy_stride,
                                               now, dw + r * channels + first, channels});
            }
            first += size;
        }
    }
}

}  // namespace mg
