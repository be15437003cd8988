// 3x3 convolutions with a quarter of the multiplications: Winograd's F(4x4, 3x3).
//
// Along one axis, four neighbouring outputs of a filter with three taps need twelve products if done
// one by one. As polynomials, they can be had from six: evaluate both factors at six points, multiply
// the values, and interpolate. With the points 0, 1, -1, b, -b and infinity the outputs are
//     y = At (G w * Bt d)       d: the six inputs below the four outputs, w: the three taps,
// and in two dimensions, over tiles of 4x4 outputs and 6x6 inputs, 36 products instead of 144:
//     Y = At (U * V) A,   U = G W Gt,   V = Bt D B,
//
//          1/P    0    0             P  0 -S  0  1  0             1  1  1  1  1  0
//          1/q   1/q  1/q            0 -P -P  1  1  0       At =  0  1 -1  b -b  0
//     G =  1/q  -1/q  1/q      Bt =  0  P -P -1  1  0             0  1  1  P  P  0
//          1/r   b/r  P/r            0 -b -1  b  1  0             0  1 -1 bP -bP 1
//          1/r  -b/r  P/r            0  b -1 -b  1  0
//           0     0    1             0  P  0 -S  0  1
//
// where P = b², S = 1 + b², q = 2 (1 - P), r = 2 P (P - 1). The sum over channels is done on U * V, so
// it is 36 matrix products, one for each value of a tile. b = 3/2 keeps rounding errors smaller than
// the usual 2: about 3e-6 of the largest value.
//
// Gradients are the transposed of the same: with M = A dY At,
//     dW = Gt (sum over tiles of M * V) G       dD = B (sum over outputs of U * M) Bt.
//
// Inputs that are upsampled (nearest) come as pairs: the six values below a tile are a b b c c d. The
// row of -1 then is zero, and 25 products do; no upsampled grid is made.
#pragma once

#include <vector>

#include "direct.h"

namespace mg {

namespace winograd {

constexpr float b = 1.5f, P = b * b, S = 1 + P, q = 2 * (1 - P), r = 2 * P * (P - 1);
constexpr int VALUES = 36;

// Each of these takes and gives values one `step` apart: along a row, or from row to row.

// Bt, six to six.
template <int FROM, int STEP>
inline void inputs(const vec* d, vec* v) {
    vec even = d[4 * FROM] - P * d[2 * FROM], odd = d[3 * FROM] - P * d[FROM];
    vec even_b = d[4 * FROM] - d[2 * FROM], odd_b = d[3 * FROM] - d[FROM];
    v[0] = P * d[0] - S * d[2 * FROM] + d[4 * FROM];
    v[STEP] = even + odd, v[2 * STEP] = even - odd;
    v[3 * STEP] = even_b + b * odd_b, v[4 * STEP] = even_b - b * odd_b;
    v[5 * STEP] = P * d[FROM] - S * d[3 * FROM] + d[5 * FROM];
}

// Bt of pairs, four to six; the third is left as it is.
template <int FROM, int STEP>
inline void paired_inputs(const vec* d, vec* v) {
    vec rise = d[2 * FROM] - d[FROM];
    v[0] = P * d[0] - S * d[FROM] + d[2 * FROM];
    v[STEP] = 2.0f * (d[2 * FROM] - P * d[FROM]);
    v[3 * STEP] = (1 + b) * rise, v[4 * STEP] = (1 - b) * rise;
    v[5 * STEP] = P * d[FROM] - S * d[2 * FROM] + d[3 * FROM];
}

// B, six to six.
inline void inputs_back(const vec* v, vec* d) {
    vec sum = v[1] + v[2], gap = v[1] - v[2], sum_b = v[3] + v[4], gap_b = b * (v[3] - v[4]);
    d[0] = P * v[0];
    d[1] = P * (v[5] - gap) - gap_b;
    d[2] = -S * v[0] - P * sum - sum_b;
    d[3] = gap + gap_b - S * v[5];
    d[4] = v[0] + sum + sum_b;
    d[5] = v[5];
}

// B of pairs, six (without the third) to four.
inline void paired_inputs_back(const vec* v, vec* d) {
    vec rise = (1 + b) * v[3] + (1 - b) * v[4], second = 2.0f * v[1];
    d[0] = P * v[0];
    d[1] = P * (v[5] - second) - S * v[0] - rise;
    d[2] = v[0] + second + rise - S * v[5];
    d[3] = v[5];
}

// At, six to four.
template <int FROM, int STEP>
inline void outputs(const vec* m, vec* y) {
    vec sum = m[FROM] + m[2 * FROM], gap = m[FROM] - m[2 * FROM];
    vec sum_b = m[3 * FROM] + m[4 * FROM], gap_b = b * (m[3 * FROM] - m[4 * FROM]);
    y[0] = m[0] + sum + sum_b;
    y[STEP] = gap + gap_b;
    y[2 * STEP] = sum + P * sum_b;
    y[3 * STEP] = gap + P * gap_b + m[5 * FROM];
}

// A, four to six.
template <int FROM, int STEP>
inline void outputs_back(const vec* y, vec* m) {
    vec even = y[0] + y[2 * FROM], odd = y[FROM] + y[3 * FROM];
    vec even_b = y[0] + P * y[2 * FROM], odd_b = b * (y[FROM] + P * y[3 * FROM]);
    m[0] = y[0];
    m[STEP] = even + odd, m[2 * STEP] = even - odd;
    m[3 * STEP] = even_b + odd_b, m[4 * STEP] = even_b - odd_b;
    m[5 * STEP] = y[3 * FROM];
}

// G along one axis, and back. Plain floats: this is done once a call.
inline void taps(const float* w, long step, float* u, long to) {
    float even = w[0] + w[2 * step], even_b = w[0] + P * w[2 * step], odd_b = b * w[step];
    u[0] = w[0] / P;
    u[to] = (even + w[step]) / q, u[2 * to] = (even - w[step]) / q;
    u[3 * to] = (even_b + odd_b) / r, u[4 * to] = (even_b - odd_b) / r;
    u[5 * to] = w[2 * step];
}
inline void taps_back(const float* u, long step, float* w, long to) {
    float sum = (u[step] + u[2 * step]) / q, sum_b = (u[3 * step] + u[4 * step]) / r;
    w[0] = u[0] / P + sum + sum_b;
    w[to] = (u[step] - u[2 * step]) / q + b * ((u[3 * step] - u[4 * step]) / r);
    w[2 * to] = sum + P * sum_b + u[5 * step];
}

// Lanes are tiles: every fourth value of a row, in four vectors; and back.
inline void get_fours(const float* p, vec* v) {
    vec e, o, e2, o2;
    deinterleave(load(p), load(p + LANES), e, o);
    deinterleave(load(p + 2 * LANES), load(p + 3 * LANES), e2, o2);
    deinterleave(e, e2, v[0], v[2]);
    deinterleave(o, o2, v[1], v[3]);
}
inline void put_fours(float* p, const vec* v) {
    vec e, e2, o, o2, low, high;
    interleave(v[0], v[2], e, e2);
    interleave(v[1], v[3], o, o2);
    interleave(e, o, low, high);
    store(p, low), store(p + LANES, high);
    interleave(e2, o2, low, high);
    store(p + 2 * LANES, low), store(p + 3 * LANES, high);
}

// The lanes moved down by one, and `last` behind them.
template <int... I>
inline vec moved(vec v, float last, std::integer_sequence<int, I...>) {
    return MG_SHUFFLE(v, splat(last), (I + 1)...);
}
inline vec moved(vec v, float last) {
    return moved(v, last, std::make_integer_sequence<int, LANES>());
}

}  // namespace winograd

class Winograd : public Convolution {
  public:
    // Whether it is faster than tap by tap. Multiply-adds of a position are counted on both sides; the
    // transforms of a channel cost as much as 20 of them (measured), more where rows of tiles leave
    // lanes empty.
    static bool wins(const Geometry& g, long kernel) {
        if (kernel != 3 || !g.tall || g.fine.H % 4 || g.fine.W % 4) return false;
        double direct = (9.0 * g.Cf + 4.0 * g.Cu) * g.O;
        double in_tiles = (36 * g.Cf + 25 * g.Cu) / 16.0 * g.O;
        double lanes = double(round_up(g.fine.W / 4, LANES)) / (g.fine.W / 4);
        return in_tiles + 20.0 * lanes * (g.Cf + g.Cu + g.O) < direct;
    }

    explicit Winograd(const Geometry& geometry)
        : g(geometry), C(g.Cf + g.Cu), across(g.fine.W / 4), down(g.fine.H / 4) {
        stride = round_up(g.group * across * down, LANES) + LANES;
        if (stride / LANES % 2 == 0) stride += LANES;
        in_step = spread(C * stride), out_step = spread(g.O * stride);
        for (long c = 0; c < std::max(C, g.O); c++) offsets.push_back(int(c * stride));
    }

    void pack_forward(const float* input, const float* hidden) override {
        std::vector<float> u = transformed(input, hidden);
        packed.resize(u.size());
        for (int k = 0; k < winograd::VALUES; k++)
            pack(&u[k * C * g.O], channels(k), g.O, &packed[k * C * g.O]);
    }

    long forward_room() const override { return winograd::VALUES * (in_step + out_step); }

    void forward(const float* x, const float* x_coarse, const float* bias, Finish finish,
                 float* work, float* out, long n) const override {
        float *v = work, *m = work + winograd::VALUES * in_step;
        const std::vector<float> none(g.O, 0.0f);
        transform_inputs(x, x_coarse, v, n);
        for (int k = 0; k < winograd::VALUES; k++)
            convolve(v + k * in_step, offsets.data(), channels(k), &packed[k * C * g.O], g.O,
                     none.data(), PLAIN, m + k * out_step, stride, vectors(n));
        for (long o = 0; o < g.O; o++)
            each_tiles(n, [&](long s, long y, long q, long tile) {
                vec rows[24];
MG_UNROLL
                for (int j = 0; j < 6; j++) {
                    vec values[6];
MG_UNROLL
                    for (int i = 0; i < 6; i++)
                        values[i] = load(m + (6 * i + j) * out_step + o * stride + tile);
                    winograd::outputs<1, 6>(values, rows + j);
                }
                float* to = out + g.fine.front + o * g.fine.stride + s * g.fine.sample +
                            4 * y * g.fine.pitch + 4 * q;
MG_UNROLL
                for (int i = 0; i < 4; i++) {
                    vec four[4];
                    winograd::outputs<1, 1>(rows + 6 * i, four);
                    for (vec& value : four) {
                        value += bias[o];
                        if (finish == RELU) value = relu(value);
                    }
                    winograd::put_fours(to + i * g.fine.pitch, four);
                }
            });
    }

    void pack_backward(const float* input, const float* hidden, long first,
                       bool coarse_too) override {
        back_first = first, back_coarse = g.Cu > 0 && coarse_too;
        std::vector<float> u = transformed(input, hidden), turned(C * g.O);
        back_packed.resize(u.size());
        for (int k = 0; k < winograd::VALUES; k++) {
            long count = back_channels(k);
            for (long o = 0; o < g.O; o++)
                for (long c = 0; c < count; c++)
                    turned[o * count + c] = u[(k * C + first + c) * g.O + o];
            pack(turned.data(), g.O, count, &back_packed[k * C * g.O]);
        }
    }

    long backward_room() const override {
        return winograd::VALUES * (in_step + out_step) + 72 * row_room();
    }

    void backward(const float* x, const float* x_coarse, const float* dy, float* work, float* dw,
                  float* dx, float* dx_coarse, long n, long) const override {
        float *v = work, *m = work + winograd::VALUES * in_step;
        const std::vector<float> none(C, 0.0f);
        if (dw) {
            transform_inputs(x, x_coarse, v, n);
            clear_tails(v, in_step, C, n);
        }
        transform_gradients(dy, m, n);
        clear_tails(m, out_step, g.O, n);
        for (int k = 0; k < winograd::VALUES; k++) {
            float *v_k = v + k * in_step, *m_k = m + k * out_step;
            if (dw)
                weight_gradient(v_k, offsets.data(), channels(k), m_k, stride, g.O, vectors(n),
                                dw + k * C * g.O);
            if (back_channels(k))  // in place of the inputs
                convolve(m_k, offsets.data(), g.O, &back_packed[k * C * g.O], back_channels(k),
                         none.data(), PLAIN, v_k + back_first * stride, stride, vectors(n));
        }
        float* rows = m + winograd::VALUES * out_step;
        for (long c = back_first; c < g.Cf; c++)
            fine_gradient(v + c * stride, dx + (c - back_first) * g.fine.stride, rows, n);
        for (long c = 0; c < g.Cu && back_coarse; c++)
            coarse_gradient(v + (g.Cf + c) * stride, dx_coarse + c * g.coarse.stride, rows, n);
    }

    long gradient_size() const override { return winograd::VALUES * C * g.O; }  // [value][c][o]

    void unpack(const float* dw, float* input, float* hidden) const override {
        for (long o = 0; o < g.O; o++)
            for (long c = 0; c < C; c++) {
                float* to = c >= g.Cf ? input ? input + (o * g.Cin + c - g.Cf) * 9 : nullptr
                                      : g.weights(input, hidden, o, c);
                if (!to) continue;
                float rows[18];
                const float* u = dw + c * g.O + o;
                for (int j = 0; j < 6; j++)
                    winograd::taps_back(u + j * C * g.O, 6 * C * g.O, rows + j, 6);
                for (int i = 0; i < 3; i++) winograd::taps_back(rows + 6 * i, 1, to + 3 * i, 1);
            }
    }

  private:
    // An odd number of cache lines, so that the 36 places of a tile fall into different sets.
    static long spread(long floats) { return round_up(floats, 32) + 16; }

    // Values of a tile that the upsampled inputs have a part in; they are the last channels.
    long channels(int k) const { return k / 6 == 2 || k % 6 == 2 ? g.Cf : C; }
    long back_channels(int k) const {
        return (back_coarse ? channels(k) : g.Cf) - back_first;
    }
    long tiles(long n) const { return n * across * down; }
    long vectors(long n) const { return (tiles(n) + LANES - 1) / LANES; }

    // U of all weights, [value][c][o]; of upsampled inputs zero where V is.
    std::vector<float> transformed(const float* input, const float* hidden) const {
        std::vector<float> u(winograd::VALUES * C * g.O);
        for (long o = 0; o < g.O; o++)
            for (long c = 0; c < C; c++) {
                const float* w = c >= g.Cf ? input + (o * g.Cin + c - g.Cf) * 9
                                           : g.weights(input, hidden, o, c);
                float rows[18], *to = &u[c * g.O + o];
                for (int j = 0; j < 3; j++) winograd::taps(w + j, 3, rows + j, 3);
                for (int i = 0; i < 6; i++)
                    winograd::taps(rows + 3 * i, 1, to + 6 * i * C * g.O, C * g.O);
            }
        return u;
    }

    // body(sample, row of tiles, first tile of a vector, its number) in rising order: where a row has
    // fewer tiles than lanes, what overruns it is written again by the next.
    template <class Body>
    void each_tiles(long n, Body&& body) const {
        for (long s = 0; s < n; s++)
            for (long first = 0; first < across; first += LANES) {
                long q = std::max(0L, std::min(first, across - LANES));
                for (long y = 0; y < down; y++) body(s, y, q, (s * down + y) * across + q);
            }
    }

    void transform_inputs(const float* x, const float* x_coarse, float* v, long n) const {
        for (long c = 0; c < g.Cf; c++)
            transform_fine(x + g.fine.front + c * g.fine.stride, v + c * stride, n);
        for (long c = 0; c < g.Cu; c++)
            transform_coarse(x_coarse + g.coarse.front + c * g.coarse.stride,
                             v + (g.Cf + c) * stride, n);
    }

    void transform_fine(const float* plane, float* v, long n) const {
        vec rows[36];
        auto read = [&](const float* p, vec* to) {  // six inputs of a row below each tile
            vec d[6];
            winograd::get_fours(p, d);
            d[4] = winograd::moved(d[0], p[4 * LANES]);
            d[5] = winograd::moved(d[1], p[4 * LANES + 1]);
            winograd::inputs<1, 1>(d, to);
        };
        each_tiles(n, [&](long s, long y, long q, long tile) {
            const float* p = plane + s * g.fine.sample + (4 * y - 1) * g.fine.pitch + 4 * q - 1;
            if (y == 0)
                read(p, rows), read(p + g.fine.pitch, rows + 6);
            else
                for (int j = 0; j < 12; j++) rows[j] = rows[24 + j];
MG_UNROLL
            for (int i = 2; i < 6; i++) read(p + i * g.fine.pitch, rows + 6 * i);
MG_UNROLL
            for (int j = 0; j < 6; j++) {
                vec values[6];
                winograd::inputs<6, 1>(rows + j, values);
MG_UNROLL
                for (int i = 0; i < 6; i++) store(v + (6 * i + j) * in_step + tile, values[i]);
            }
        });
    }

    void transform_coarse(const float* plane, float* v, long n) const {
        vec rows[24];
        auto read = [&](const float* p, vec* to) {  // four inputs of a row below each tile
            vec d[4];
            deinterleave(load(p), load(p + LANES), d[0], d[1]);
            deinterleave(load(p + 2), load(p + 2 + LANES), d[2], d[3]);
            winograd::paired_inputs<1, 1>(d, to);
        };
        each_tiles(n, [&](long s, long y, long q, long tile) {
            const float* p = plane + s * g.coarse.sample + (2 * y - 1) * g.coarse.pitch + 2 * q - 1;
            if (y == 0)
                read(p, rows), read(p + g.coarse.pitch, rows + 6);
            else
                for (int j = 0; j < 12; j++) rows[j] = rows[12 + j];
            for (int i = 2; i < 4; i++) read(p + i * g.coarse.pitch, rows + 6 * i);
MG_UNROLL
            for (int j = 0; j < 6; j++) {
                if (j == 2) continue;
                vec values[6];
                winograd::paired_inputs<6, 1>(rows + j, values);
MG_UNROLL
                for (int i = 0; i < 6; i++)
                    if (i != 2) store(v + (6 * i + j) * in_step + tile, values[i]);
            }
        });
    }

    void transform_gradients(const float* dy, float* m, long n) const {
        for (long o = 0; o < g.O; o++)
            each_tiles(n, [&](long s, long y, long q, long tile) {
                const float* p = dy + g.fine.front + o * g.fine.stride + s * g.fine.sample +
                                 4 * y * g.fine.pitch + 4 * q;
                vec rows[24];
MG_UNROLL
                for (int i = 0; i < 4; i++) {
                    vec four[4];
                    winograd::get_fours(p + i * g.fine.pitch, four);
                    winograd::outputs_back<1, 1>(four, rows + 6 * i);
                }
MG_UNROLL
                for (int j = 0; j < 6; j++) {
                    vec values[6];
                    winograd::outputs_back<6, 1>(rows + j, values);
MG_UNROLL
                    for (int i = 0; i < 6; i++)
                        store(m + (6 * i + j) * out_step + o * stride + tile, values[i]);
                }
            });
    }

    // Lanes behind the last tile must not count in a sum over tiles.
    void clear_tails(float* values, long step, long count, long n) const {
        long left = vectors(n) * LANES - tiles(n);
        for (int k = 0; k < winograd::VALUES && left; k++)
            for (long c = 0; c < count; c++)
                std::memset(values + k * step + c * stride + tiles(n), 0, left * sizeof(float));
    }

    // A row of tiles' gradients of one value, with room for a neighbour on both sides.
    long row_room() const { return LANES + round_up(across, LANES) + LANES; }

    // Neighbouring tiles overlap by two inputs, whose gradients add up. Down the rows of tiles, the
    // last two rows of a tile are kept until the next have come; along a row of tiles, what falls
    // into a neighbour is read from there. Rows of the grid each tile row completes: `height`, from
    // one before its first on. vertical(values of tiles, their rows); put(row of tiles, row of grid).
    template <int HEIGHT, class Vertical, class Put>
    void overlapped(const float* v, float* rows, long n, const Grid& grid, float* plane,
                    Vertical&& vertical, Put&& put) const {
        const long room = row_room();
        ivec lane;
        for (int i = 0; i < LANES; i++) lane[i] = i;
        const vec inside = (vec)(lane < int(std::min(across, LANES)));
        for (long s = 0; s < n; s++, plane += grid.sample) {
            float *now = rows + LANES, *before = now + 36 * room;
            for (long y = 0; y < down; y++, std::swap(now, before)) {
                for (long first = 0; first < across; first += LANES) {
                    long q = std::max(0L, std::min(first, across - LANES));
                    const float* from = v + (s * down + y) * across + q;
MG_UNROLL
                    for (int j = 0; j < 6; j++) {
                        vec values[6], parts[6];
MG_UNROLL
                        for (int i = 0; i < 6; i++) values[i] = load(from + (6 * i + j) * in_step);
                        vertical(values, parts);
                        if (y > 0) {
                            parts[0] += load(before + (6 * HEIGHT + j) * room + q);
                            parts[1] += load(before + (6 * HEIGHT + 6 + j) * room + q);
                        }
MG_UNROLL
                        for (int i = 0; i < HEIGHT + 2; i++)  // no tile behind the last gives to it
                            store(now + (6 * i + j) * room + q,
                                  j == 0 ? masked(parts[i], inside) : parts[i]);
                    }
                }
                for (int i = y == 0; i < HEIGHT; i++)
                    put(now + 6 * i * room, plane + (HEIGHT * y - 1 + i) * grid.pitch);
            }
            put(before + 6 * HEIGHT * room, plane + (HEIGHT * down - 1) * grid.pitch);
        }
    }

    // From V's gradients of one channel to those of the inputs.
    void fine_gradient(const float* v, float* plane, float* rows, long n) const {
        const long room = row_room();
        overlapped<4>(
            v, rows, n, g.fine, plane + g.fine.front,
            [](const vec* values, vec* parts) {
                winograd::inputs_back(values, parts);
            },
            [&](const float* row, float* to) {
                for (long first = 0; first < across; first += LANES) {
                    long q = std::max(0L, std::min(first, across - LANES));
                    vec values[6], d[6];
                    for (int j = 0; j < 6; j++) values[j] = load(row + j * room + q);
                    winograd::inputs_back(values, d);
                    d[1] += load(row + 5 * room + q - 1);
                    d[4] += winograd::P * load(row + q + 1);
                    winograd::put_fours(to + 4 * q, d + 1);
                }
            });
    }

    void coarse_gradient(const float* v, float* plane, float* rows, long n) const {
        const long room = row_room();
        overlapped<2>(
            v, rows, n, g.coarse, plane + g.coarse.front,
            [](const vec* values, vec* parts) {
                winograd::paired_inputs_back(values, parts);
            },
            [&](const float* row, float* to) {
                for (long first = 0; first < across; first += LANES) {
                    long q = std::max(0L, std::min(first, across - LANES));
                    vec values[6], d[4], low, high;
                    for (int j = 0; j < 6; j++) values[j] = load(row + j * room + q);
                    winograd::paired_inputs_back(values, d);
                    d[1] += load(row + 5 * room + q - 1);
                    d[2] += winograd::P * load(row + q + 1);
                    interleave(d[1], d[2], low, high);
                    store(to + 2 * q, low), store(to + 2 * q + LANES, high);
                }
            });
    }

    Geometry g;
    long C, across, down;            // tiles in a row, rows of tiles
    long stride, in_step, out_step;  // from channel to channel, from value to value
    std::vector<int> offsets;
    std::vector<float> packed, back_packed;
    long back_first = 0;
    bool back_coarse = false;
};

}  // namespace mg
