// The convolution of narrow rows with many channels: one-dimensional grids, such as those of a memory
// for words.
//
// Lanes over positions would mostly be pads there, and most taps would meet nothing but zeros. So
// lanes run over the channels that are written, a number of places go side by side, and each
// multiplies only by the taps that fall on the grid:
//     out[place][o]  =  sum over the place's terms of  x[place + offset[term]] * w[term][o].
// Places with the same taps (all in the middle, or one end) make a kind. Blocks of channels are
// turned from and to planes, 16 x 16 values in registers.
#pragma once

#include <vector>

#include "direct.h"

namespace mg {

constexpr int WIDE = 3;                            // vectors of channels in a block
constexpr int ABREAST = ACCUMULATORS / WIDE;       // places (or terms, for the weight gradient)

// Terms whose weights follow each other, read from the planes at `x`.
struct Terms {
    const float* x;
    const int* places;     // of the tile
    const int* offsets;    // of the terms
    long count;
    const float* weights;  // [term][block's channels]
};

struct NarrowTile {
    const Terms* terms;
    int kinds;             // of terms
    const float* bias;     // of the block
    Finish finish;
    float* out;            // [row][block's channels]
    const int* rows;       // of the tile
};

template <int NO, int NP>
void narrow_tile(const NarrowTile& t) {
    vec acc[NP][NO];
MG_UNROLL
    for (int p = 0; p < NP; p++)
MG_UNROLL
        for (int o = 0; o < NO; o++) acc[p][o] = load(t.bias + o * LANES);
    for (const Terms* s = t.terms; s != t.terms + t.kinds; s++) {
        const float* x[NP];
MG_UNROLL
        for (int p = 0; p < NP; p++) x[p] = s->x + s->places[p];
        const float* w = s->weights;
        for (const int *offset = s->offsets, *end = offset + s->count; offset != end; offset++) {
            vec weight[NO];
MG_UNROLL
            for (int o = 0; o < NO; o++) weight[o] = load(w + o * LANES);
MG_UNROLL
            for (int p = 0; p < NP; p++) {
                vec in = splat(x[p][*offset]);
MG_UNROLL
                for (int o = 0; o < NO; o++) acc[p][o] += in * weight[o];
            }
            w += NO * LANES;
        }
    }
MG_UNROLL
    for (int p = 0; p < NP; p++)
MG_UNROLL
        for (int o = 0; o < NO; o++)
            store(t.out + t.rows[p] * (NO * LANES) + o * LANES,
                  t.finish == RELU ? relu(acc[p][o]) : acc[p][o]);
}

struct NarrowWeightTile {
    const float* x;        // of the first term
    long x_stride;         // from term to term
    const int* places;
    long count;            // of places
    const float* dy;       // [row][block's channels]
    const int* rows;
    float* dw;             // [term][channel]
    long dw_stride;
};

template <int NO, int NR>
void narrow_weight_tile(const NarrowWeightTile& t) {
    vec acc[NR][NO] = {};
    const float* x[NR];
MG_UNROLL
    for (int r = 0; r < NR; r++) x[r] = t.x + r * t.x_stride;
    for (long j = 0; j < t.count; j++) {
        const float* row = t.dy + t.rows[j] * (NO * LANES);
        vec d[NO];
MG_UNROLL
        for (int o = 0; o < NO; o++) d[o] = load(row + o * LANES);
MG_UNROLL
        for (int r = 0; r < NR; r++) {
            vec in = splat(x[r][t.places[j]]);
MG_UNROLL
            for (int o = 0; o < NO; o++) acc[r][o] += in * d[o];
        }
    }
MG_UNROLL
    for (int r = 0; r < NR; r++)
MG_UNROLL
        for (int o = 0; o < NO; o++) {
            float* to = t.dw + r * t.dw_stride + o * LANES;
            store(to, load(to) + acc[r][o]);
        }
}

struct NarrowTables {
    TileFunction<NarrowTile> tile[WIDE + 1][ABREAST + 1] = {};
    TileFunction<NarrowWeightTile> weight[WIDE + 1][ABREAST + 1] = {};
    NarrowTables() { fill(std::make_integer_sequence<int, ABREAST>()); }
    template <int... P>
    void fill(std::integer_sequence<int, P...>) {
        ((tile[1][P + 1] = narrow_tile<1, P + 1>, weight[1][P + 1] = narrow_weight_tile<1, P + 1>,
          tile[2][P + 1] = narrow_tile<2, P + 1>, weight[2][P + 1] = narrow_weight_tile<2, P + 1>,
          tile[3][P + 1] = narrow_tile<3, P + 1>, weight[3][P + 1] = narrow_weight_tile<3, P + 1>),
         ...);
    }
};

inline const NarrowTables NARROW;

// Rows and columns of a square of values change places: each round turns the bits of (row, lane) by
// one.
inline void transpose(vec (&m)[LANES]) {
MG_UNROLL
    for (long round = 1; round < LANES; round *= 2) {
        vec t[LANES];
MG_UNROLL
        for (long i = 0; i < LANES / 2; i++)
            interleave(m[i], m[i + LANES / 2], t[2 * i], t[2 * i + 1]);
MG_UNROLL
        for (long i = 0; i < LANES; i++) m[i] = t[i];
    }
}

// [row][channels, whole vectors] to planes, and back; channels from `count` on are none, or zero.
inline void rows_to_planes(const float* rows, long width, float* planes, long stride, long count,
                           long vectors) {
    for (long v = 0; v < vectors; v++)
        for (long c = 0; c < count; c += LANES) {
            vec m[LANES];
MG_UNROLL
            for (long i = 0; i < LANES; i++) m[i] = load(rows + (v * LANES + i) * width + c);
            transpose(m);
            for (long i = 0; i < std::min(LANES, count - c); i++)
                store(planes + (c + i) * stride + v * LANES, m[i]);
        }
}
inline void planes_to_rows(const float* planes, long stride, long count, long vectors, float* rows,
                           long width) {
    for (long v = 0; v < vectors; v++)
        for (long c = 0; c < count; c += LANES) {
            vec m[LANES] = {};
            for (long i = 0; i < std::min(LANES, count - c); i++)
                m[i] = load(planes + (c + i) * stride + v * LANES);
            transpose(m);
MG_UNROLL
            for (long i = 0; i < LANES; i++) store(rows + (v * LANES + i) * width + c, m[i]);
        }
}

// Weights [term][channel] in blocks of channels, in whole vectors: [block][term][channel].
class Blocks {
  public:
    Blocks() = default;
    Blocks(long terms, long channels)
        : terms(terms), channels(channels), vectors((channels + LANES - 1) / LANES),
          count((vectors + WIDE - 1) / WIDE), lanes(terms * vectors) {}

    // body(vectors, first channel, channels, weights) for every block.
    template <class Body>
    void each(Body&& body) const {
        long first = 0;
        for (long block = 0; block < count; block++) {
            int size = block_size(vectors, count, block);
            body(size, first, std::min(size * LANES, channels - first),
                 (const float*)lanes.data() + first * terms);
            first += size * LANES;
        }
    }
    // weight(term, channel) for all of them.
    template <class Weight>
    void fill(Weight&& weight) {
        each([&](int size, long first, long count, const float* block) {
            float* to = const_cast<float*>(block);
            for (long t = 0; t < terms; t++, to += size * LANES)
                for (long c = 0; c < count; c++) to[c] = weight(t, first + c);
        });
    }

  private:
    struct Lane {
        vec values;  // of their alignment
    };
    long terms = 0, channels = 0, vectors = 0, count = 0;
    std::vector<Lane> lanes;
};

// Terms first to last, read from the coarse planes or the fine ones.
struct Range {
    long first, last;
    bool coarse;
    bool operator==(const Range& other) const {
        return first == other.first && last == other.last && coarse == other.coarse;
    }
};

// Columns with the same terms, and where they lie in the planes, sample by sample.
struct Columns {
    std::vector<Range> ranges;
    std::vector<std::pair<long, long>> each;  // of the fine and of the coarse grid
    std::vector<int> fine, coarse;

    void lay_out(const Geometry& g) {
        for (long s = 0; s < g.steps * g.group; s++)
            for (auto [x, x_coarse] : each) {
                fine.push_back(int(s * g.fine.sample + x));
                coarse.push_back(int(s * g.coarse.sample + x_coarse));
            }
    }
};

// From planes to planes: every place is the sum of its terms.
struct Product {
    std::vector<Columns> kinds;
    std::vector<int> offsets;  // of the terms
    Blocks weights;

    void add(std::vector<Range> ranges, long x, long x_coarse) {
        auto same = [&](const Columns& kind) { return kind.ranges == ranges; };
        auto found = std::find_if(kinds.begin(), kinds.end(), same);
        if (found == kinds.end()) found = kinds.insert(found, {std::move(ranges), {}, {}, {}});
        found->each.push_back({x, x_coarse});
    }

    // `rows` is scratch memory; `to_coarse`: the places of `out` are the coarse grid's.
    void run(const float* x, const float* x_coarse, const float* bias, Finish finish, long n,
             float* rows, bool to_coarse, float* out, long out_stride, long vectors) const {
        weights.each([&](int size, long first, long count, const float* block) {
            float own_bias[WIDE * LANES] = {};
            if (bias) std::copy(bias + first, bias + first + count, own_bias);
            for (const Columns& kind : kinds) {
                long places = n * long(kind.each.size()), at = 0;
                long tiles = (places + ABREAST - 1) / ABREAST;
                for (long tile = 0; tile < tiles; tile++) {
                    Terms terms[2];
                    int used = 0, abreast = block_size(places, tiles, tile);
                    for (const Range& r : kind.ranges)
                        terms[used++] = {r.coarse ? x_coarse : x,
                                         (r.coarse ? kind.coarse : kind.fine).data() + at,
                                         offsets.data() + r.first, r.last - r.first,
                                         block + r.first * size * LANES};
                    NARROW.tile[size][abreast]({terms, used, own_bias, finish, rows,
                                                (to_coarse ? kind.coarse : kind.fine).data() + at});
                    at += abreast;
                }
            }
            rows_to_planes(rows, size * LANES, out + first * out_stride, out_stride, count, vectors);
        });
    }
};

class Narrow : public Convolution {
  public:
    // Wide rows have few pads, and few channels would leave lanes empty.
    static bool wins(const Geometry& g) { return !g.tall && g.fine.W <= 16 && g.O >= 16; }

    explicit Narrow(const Geometry& geometry)
        : g(geometry), axis(g.pw), W(g.fine.W), Wc(g.up >= 0 ? g.coarse.W : 0) {
        for (long half = 0; half < 2; half++) {
            halves[half] = g.taps * g.Cf + coarse_terms;
            if (g.up >= 0) coarse_terms += axis.count[half] * g.Cu;
        }
    }

    // Terms: [tap][fine channel], then [half][coarse tap][coarse channel].
    void pack_forward(const float* input, const float* hidden) override {
        forward_ = {};
        for (long w = 0; w < W; w++) {
            std::vector<Range> ranges{{std::max(0L, g.pw - w) * g.Cf,
                                       std::min(g.taps, W + g.pw - w) * g.Cf, false}};
            if (g.up >= 0) {
                long half = w % 2, source = w / 2 + axis.lowest[half], from = halves[half];
                ranges.push_back({from + std::max(0L, -source) * g.Cu,
                                  from + std::min(axis.count[half], Wc - source) * g.Cu, true});
            }
            forward_.add(std::move(ranges), w, w / 2);
        }
        for (Columns& kind : forward_.kinds) kind.lay_out(g);
        for (long k = 0; k < g.taps; k++)
            for (long c = 0; c < g.Cf; c++)
                forward_.offsets.push_back(int(c * g.fine.stride + k - g.pw));
        each_coarse_tap([&](long half, long e, long) {
            for (long c = 0; c < g.Cu; c++)
                forward_.offsets.push_back(int(c * g.coarse.stride + axis.lowest[half] + e));
        });
        forward_.weights = Blocks(g.taps * g.Cf + coarse_terms, g.O);
        const std::vector<float> folded = fold(input);  // [coarse term][o]
        forward_.weights.fill([&](long term, long o) {
            long coarse = term - g.taps * g.Cf;
            return coarse >= 0 ? folded[coarse * g.O + o]
                               : g.weights(input, hidden, o, term % g.Cf)[term / g.Cf];
        });
    }

    long forward_room() const override { return rows_room(); }

    void forward(const float* x, const float* x_coarse, const float* bias, Finish finish,
                 float* rows, float* out, long n) const override {
        forward_.run(x + g.fine.front, x_coarse + g.coarse.front, bias, finish, n, rows, false,
                     out + g.fine.front, g.fine.stride, g.fine.vectors(n));
    }

    // Terms: [tap][o] for the fine channels, [half][coarse tap][o] for the coarse ones.
    void pack_backward(const float* input, const float* hidden, long first,
                       bool coarse_too) override {
        lay_out_meetings();
        fine_back = {}, coarse_back = {};
        back_first = first, back_coarse = g.up >= 0 && coarse_too;
        if (g.Cf > first) pack_fine_backward(input, hidden);
        if (back_coarse) pack_coarse_backward(input);
    }

    long backward_room() const override { return rows_room(); }

    void backward(const float* x, const float* x_coarse, const float* dy, float* rows, float* dw,
                  float* dx, float* dx_coarse, long n, long at) const override {
        const Grid &fine = g.fine, &coarse = g.coarse;
        if (dw) weight_gradients(x, x_coarse, dy + fine.front, at + n, rows, dw);
        const float* now = dy + fine.front + at * fine.sample;
        if (g.Cf > back_first)
            fine_back.run(now, nullptr, nullptr, PLAIN, n, rows, false, dx + fine.front,
                          fine.stride, fine.vectors(n));
        if (back_coarse)
            coarse_back.run(now, nullptr, nullptr, PLAIN, n, rows, true, dx_coarse + coarse.front,
                            coarse.stride, coarse.vectors(n));
    }

    // [term][o, whole vectors]
    long gradient_size() const override { return (g.taps * g.Cf + coarse_terms) * padded(); }

    void unpack(const float* dw, float* input, float* hidden) const override {
        for (long o = 0; o < g.O; o++)
            for (long c = 0; c < g.Cf; c++)
                if (float* to = g.weights(input, hidden, o, c))
                    for (long k = 0; k < g.taps; k++) to[k] = dw[(k * g.Cf + c) * padded() + o];
        if (!input) return;
        for (long o = 0; o < g.O; o++)
            for (long c = 0; c < g.Cu; c++)
                for (long k = 0; k < g.taps; k++) {
                    float s = 0;
                    for (long half = 0; half < 2; half++)
                        s += dw[(halves[half] + axis.tap(half, k) * g.Cu + c) * padded() + o];
                    input[(o * g.Cin + c) * g.taps + k] = s;
                }
    }

  private:
    long padded() const { return round_up(g.O, LANES); }
    long rows_room() const {
        return round_up(g.steps * g.group * g.fine.sample, LANES) * WIDE * LANES;
    }

    // body(half, tap on the coarse grid, number of the first term)
    template <class Body>
    void each_coarse_tap(Body&& body) const {
        for (long half = 0; half < 2 && g.up >= 0; half++)
            for (long e = 0; e < axis.count[half]; e++) body(half, e, halves[half] + e * g.Cu);
    }

    // Weights on the coarse grid: [half][coarse tap][coarse channel][o].
    std::vector<float> fold(const float* input) const {
        std::vector<float> folded(coarse_terms * g.O);
        for (long half = 0; half < 2 && g.up >= 0; half++)
            for (long o = 0; o < g.O; o++)
                for (long c = 0; c < g.Cu; c++)
                    for (long k = 0; k < g.taps; k++) {
                        long term = halves[half] - g.taps * g.Cf + axis.tap(half, k) * g.Cu + c;
                        folded[term * g.O + o] += input[(o * g.Cin + c) * g.taps + k];
                    }
        return folded;
    }

    void pack_fine_backward(const float* input, const float* hidden) {
        for (long w = 0; w < W; w++)
            fine_back.add({{std::max(0L, w + g.pw - W + 1) * g.O,
                            std::min(g.taps, w + g.pw + 1) * g.O, false}}, w, 0);
        for (Columns& kind : fine_back.kinds) kind.lay_out(g);
        for (long k = 0; k < g.taps; k++)
            for (long o = 0; o < g.O; o++)
                fine_back.offsets.push_back(int(o * g.fine.stride - (k - g.pw)));
        fine_back.weights = Blocks(g.taps * g.O, g.Cf - back_first);
        fine_back.weights.fill([&](long term, long c) {
            return g.weights(input, hidden, term % g.O, back_first + c)[term / g.O];
        });
    }

    void pack_coarse_backward(const float* input) {
        long first[2] = {0, axis.count[0] * g.O};
        for (long u = 0; u < Wc; u++) {
            std::vector<Range> ranges;
            for (long half = 0; half < 2; half++) {
                long source = u - axis.lowest[half];  // of the first tap; the next is one before
                ranges.push_back({first[half] + std::max(0L, source - Wc + 1) * g.O,
                                  first[half] + std::min(axis.count[half], source + 1) * g.O,
                                  false});
            }
            coarse_back.add(std::move(ranges), 2 * u, u);
        }
        for (Columns& kind : coarse_back.kinds) kind.lay_out(g);
        each_coarse_tap([&](long half, long e, long) {
            for (long o = 0; o < g.O; o++)
                coarse_back.offsets.push_back(
                    int(o * g.fine.stride - 2 * (axis.lowest[half] + e) + half));
        });
        const std::vector<float> folded = fold(input);
        coarse_back.weights = Blocks(coarse_terms / g.Cu * g.O, g.Cu);
        coarse_back.weights.fill([&](long term, long c) {
            return folded[(term / g.O * g.Cu + c) * g.O + term % g.O];
        });
    }

    // The places at which a tap falls on the grid, and the channels that it reads there.
    struct Meeting {
        long term, channels;  // the first of [channels]
        long shift;           // from a place to what the tap reads
        bool coarse;
        Columns places;
    };

    void lay_out_meetings() {
        meetings.clear();
        auto add = [&](long term, long channels, long shift, bool coarse, long last, auto&& column) {
            Meeting m{term, channels, shift, coarse, {}};
            for (long x = std::max(0L, -shift); x < std::min(last, last - shift); x++)
                m.places.each.push_back(column(x));
            m.places.lay_out(g);
            if (!m.places.each.empty()) meetings.push_back(std::move(m));
        };
        for (long k = 0; k < g.taps; k++)
            add(k * g.Cf, g.Cf, k - g.pw, false, W, [](long w) { return std::pair(w, 0L); });
        each_coarse_tap([&](long half, long e, long term) {
            add(term, g.Cu, axis.lowest[half] + e, true, Wc,
                [half](long u) { return std::pair(2 * u + half, u); });
        });
    }

    void weight_gradients(const float* x, const float* x_coarse, const float* dy, long n,
                          float* rows, float* dw) const {
        const long window = 128;  // rows of dy that stay in the first-level cache
        long vectors = (g.O + LANES - 1) / LANES, blocks = (vectors + WIDE - 1) / WIDE, first = 0;
        for (long b = 0; b < blocks; b++) {
            int size = block_size(vectors, blocks, b);
            planes_to_rows(dy + first * g.fine.stride, g.fine.stride,
                           std::min(size * LANES, g.O - first), g.fine.vectors(n), rows,
                           size * LANES);
            for (const Meeting& m : meetings) {
                const Grid& grid = m.coarse ? g.coarse : g.fine;
                const float* from = (m.coarse ? x_coarse : x) + grid.front + m.shift;
                const std::vector<int>& places = m.coarse ? m.places.coarse : m.places.fine;
                long all = n * long(m.places.each.size());
                long chunks = (m.channels + ABREAST - 1) / ABREAST;
                for (long at = 0; at < all; at += window)
                    for (long chunk = 0, c = 0; chunk < chunks; chunk++) {
                        int abreast = block_size(m.channels, chunks, chunk);
                        NARROW.weight[size][abreast](
                            {from + c * grid.stride, grid.stride, places.data() + at,
                             std::min(window, all - at), rows, m.places.fine.data() + at,
                             dw + (m.term + c) * padded() + first, padded()});
                        c += abreast;
                    }
            }
            first += size * LANES;
        }
    }

    Geometry g;
    CoarseAxis axis;
    long W, Wc, coarse_terms = 0;
    long halves[2];  // first terms on the coarse grid
    Product forward_, fine_back, coarse_back;
    std::vector<Meeting> meetings;
    long back_first = 0;
    bool back_coarse = false;
};

}  // namespace mg
