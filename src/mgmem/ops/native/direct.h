// The convolution of a level tap by tap.
//
// What is read from the coarser level is upsampled (nearest) and convolved by k x k; the four
// positions within a coarse cell see the coarse grid through kernels of (k/2 + 1)² taps, sums of
// the original weights. So this part is done on the coarse grid, with 4/9 of the multiplications
// for k = 3, and is merged into the fine grid.
#pragma once

#include <vector>

#include "geometry.h"

namespace mg {

inline long floor_half(long n) { return n >= 0 ? n / 2 : -((1 - n) / 2); }

// One axis of the kernels on the coarse grid, for the first and the second half of a cell.
struct CoarseAxis {
    long pad, lowest[2], count[2];
    explicit CoarseAxis(long pad) : pad(pad) {
        for (long a = 0; a < 2; a++) {
            lowest[a] = floor_half(a - pad);
            count[a] = floor_half(a + pad) - lowest[a] + 1;
        }
    }
    long tap(long a, long k) const { return floor_half(a + k - pad) - lowest[a]; }
};

class Direct : public Convolution {
  public:
    explicit Direct(const Geometry& geometry)
        : g(geometry), halves(g.up < 0 ? 0 : g.tall ? 4 : 2), rows(g.ph), columns(g.pw) {
        offsets.resize(g.Cf * g.taps);
        for (long k = 0; k < g.taps; k++)
            for (long c = 0, s = shift(k); c < g.Cf; c++)
                offsets[c * g.taps + k] = int(c * g.fine.stride + s);
        for (long half = 0; half < halves; half++) lay_out_coarse(half);
    }

    void pack_forward(const float* input, const float* hidden) override {
        packed.resize(g.Cf * g.taps * g.O);
        coarse_packed.assign(coarse_terms * g.O, 0.0f);
        float* to = packed.data();
        long blocks = block_count(g.O), first = 0, below = (g.Cs + g.Cp) * g.taps;
        for (long b = 0; b < blocks; b++) {
            int size = block_size(g.O, blocks, b);
            to = turn(input + (first * g.Cin + g.Cu) * g.taps, g.Cin * g.taps, below, size, to);
            to = turn(hidden + first * g.Ch * g.taps, g.Ch * g.taps, g.Ch * g.taps, size, to);
            for (long half = 0; half < halves; half++)
                fold(input, half, first, size,
                     &coarse_packed[coarse_first[half] * g.O + first * g.Cu * coarse_taps[half]]);
            first += size;
        }
    }

    long forward_room() const override { return parts_room(); }

    void forward(const float* x, const float* x_coarse, const float* bias, Finish finish,
                 float* parts, float* out, long n) const override {
        out += g.fine.front;
        if (g.up >= 0) {
            const std::vector<float> none(g.O, 0.0f);
            for (long half = 0; half < halves; half++)
                convolve(x_coarse + g.coarse.front, &coarse_offsets[coarse_first[half]],
                         g.Cu * coarse_taps[half], &coarse_packed[coarse_first[half] * g.O], g.O,
                         none.data(), PLAIN, parts + half * g.O * g.coarse.stride, g.coarse.stride,
                         g.coarse.vectors(n));
            for (long o = 0; o < g.O; o++)
                merge(g.fine, g.coarse, parts + o * g.coarse.stride, g.O * g.coarse.stride, g.tall,
                      bias[o], out + o * g.fine.stride, n);
        }
        convolve(x + g.fine.front, offsets.data(), g.Cf * g.taps, packed.data(), g.O,
                 g.up >= 0 ? nullptr : bias, finish, out, g.fine.stride, g.fine.vectors(n));
    }

    void pack_backward(const float* input, const float* hidden, long first,
                       bool coarse_too) override {
        back_first = first, back_coarse = g.up >= 0 && coarse_too;
        long C = g.Cf - first;
        std::vector<float> matrix(g.O * g.taps * C);
        back_offsets.reserve(g.O * g.taps);
        for (long o = 0; o < g.O; o++)
            for (long k = 0; k < g.taps; k++) {
                back_offsets.push_back(int(o * g.fine.stride - shift(k)));
                for (long c = 0; c < C; c++)
                    matrix[(o * g.taps + k) * C + c] = g.weights(input, hidden, o, first + c)[k];
            }
        back_packed.resize(matrix.size());
        pack(matrix.data(), g.O * g.taps, C, back_packed.data());
        if (back_coarse) pack_coarse_backward(input);
    }

    long backward_room() const override { return parts_room(); }

    void backward(const float* x, const float* x_coarse, const float* dy, float* parts, float* dw,
                  float* dx, float* dx_coarse, long n, long at) const override {
        const Grid &fine = g.fine, &coarse = g.coarse;
        const std::vector<float> none(g.Cf + g.Cu + 1, 0.0f);
        const float* now = dy + fine.front + at * fine.sample;
        float* parts_now = parts + coarse.front + at * coarse.sample;
        if (g.up >= 0) {
            if (at == 0 && n < g.steps * g.group)  // nothing of a fuller call may remain behind
                std::memset(parts, 0, parts_room() * sizeof(float));
            for (long o = 0; o < g.O; o++)
                split(fine, coarse, now + o * fine.stride, parts_now + o * coarse.stride,
                      g.O * coarse.stride, g.tall, n);
        }
        if (dw) weight_gradients(x, x_coarse, dy, parts, at + n, dw);
        if (g.Cf > back_first)
            convolve(now, back_offsets.data(), g.O * g.taps, back_packed.data(),
                     g.Cf - back_first, none.data(), PLAIN, dx + fine.front, fine.stride,
                     fine.vectors(n));
        if (back_coarse)
            convolve(parts_now, back_coarse_offsets.data(),
                     long(back_coarse_offsets.size()), back_coarse_packed.data(), g.Cu, none.data(),
                     PLAIN, dx_coarse + coarse.front, coarse.stride, coarse.vectors(n));
    }

    // Fine [term][o], coarse [half][term][o].
    long gradient_size() const override { return (g.Cf * g.taps + coarse_terms) * g.O; }

    void unpack(const float* dw, float* input, float* hidden) const override {
        for (long o = 0; o < g.O; o++)
            for (long c = 0; c < g.Cf; c++)
                if (float* to = g.weights(input, hidden, o, c))
                    for (long k = 0; k < g.taps; k++) to[k] = dw[(c * g.taps + k) * g.O + o];
        if (!input) return;
        dw += g.Cf * g.taps * g.O;
        for (long o = 0; o < g.O; o++)
            for (long c = 0; c < g.Cu; c++)
                for (long k = 0; k < g.taps; k++) {
                    float s = 0;
                    for (long half = 0; half < halves; half++)
                        s += dw[(coarse_first[half] + c * coarse_taps[half] +
                                 coarse_tap[half][k]) * g.O + o];
                    input[(o * g.Cin + c) * g.taps + k] = s;
                }
    }

  private:
    long shift(long tap) const {
        return (tap / (2 * g.pw + 1) - g.ph) * g.fine.pitch + tap % (2 * g.pw + 1) - g.pw;
    }

    long coarse_shift(long half, long e) const {
        long a = half / 2, b = half % 2;
        return (rows.lowest[a] + e / columns.count[b]) * g.coarse.pitch + columns.lowest[b] +
               e % columns.count[b];
    }

    void lay_out_coarse(long half) {
        long a = half / 2, b = half % 2;
        coarse_taps[half] = rows.count[a] * columns.count[b];
        coarse_first[half] = coarse_terms;
        coarse_terms += g.Cu * coarse_taps[half];
        for (long k = 0, width = 2 * g.pw + 1; k < g.taps; k++)
            coarse_tap[half].push_back(rows.tap(a, k / width) * columns.count[b] +
                                       columns.tap(b, k % width));
        for (long c = 0; c < g.Cu; c++)
            for (long e = 0; e < coarse_taps[half]; e++)
                coarse_offsets.push_back(int(c * g.coarse.stride + coarse_shift(half, e)));
    }

    long parts_room() const { return g.coarse.room(halves * g.O); }

    // [size rows][count] to [count][size].
    static float* turn(const float* rows, long stride, long count, int size, float* to) {
        for (long r = 0; r < count; r++)
            for (int j = 0; j < size; j++) *to++ = rows[j * stride + r];
        return to;
    }

    // Weights on the coarse grid of outputs first .. first + size: [channel][tap][output].
    void fold(const float* input, long half, long first, long size, float* to) const {
        for (long c = 0; c < g.Cu; c++, to += coarse_taps[half] * size)
            for (long k = 0; k < g.taps; k++)
                for (long j = 0; j < size; j++)
                    to[coarse_tap[half][k] * size + j] +=
                        input[((first + j) * g.Cin + c) * g.taps + k];
    }

    void pack_coarse_backward(const float* input) {
        std::vector<float> folded(coarse_terms * g.O), turned(coarse_terms * g.O);
        float* to = turned.data();
        for (long half = 0; half < halves; half++) {
            float* from = &folded[coarse_first[half] * g.O];
            fold(input, half, 0, g.O, from);
            for (long o = 0; o < g.O; o++)
                for (long e = 0; e < coarse_taps[half]; e++) {
                    back_coarse_offsets.push_back(
                        int((half * g.O + o) * g.coarse.stride - coarse_shift(half, e)));
                    for (long c = 0; c < g.Cu; c++)
                        *to++ = from[(c * coarse_taps[half] + e) * g.O + o];
                }
        }
        back_coarse_packed.resize(turned.size());
        pack(turned.data(), coarse_terms * g.O / g.Cu, g.Cu, back_coarse_packed.data());
    }

    void weight_gradients(const float* x, const float* x_coarse, const float* dy,
                          const float* parts, long n, float* dw) const {
        weight_gradient(x + g.fine.front, offsets.data(), g.Cf * g.taps, dy + g.fine.front,
                        g.fine.stride, g.O, g.fine.vectors(n), dw);
        for (long half = 0; half < halves; half++)
            weight_gradient(x_coarse + g.coarse.front, &coarse_offsets[coarse_first[half]],
                            g.Cu * coarse_taps[half],
                            parts + g.coarse.front + half * g.O * g.coarse.stride, g.coarse.stride,
                            g.O, g.coarse.vectors(n),
                            dw + (g.Cf * g.taps + coarse_first[half]) * g.O);
    }

    Geometry g;
    long halves, coarse_taps[4] = {}, coarse_first[4] = {}, coarse_terms = 0;
    CoarseAxis rows, columns;
    std::vector<long> coarse_tap[4];  // on which tap of the coarse grid each tap falls
    std::vector<int> offsets, coarse_offsets, back_offsets, back_coarse_offsets;
    std::vector<float> packed, coarse_packed, back_packed, back_coarse_packed;
    long back_first = 0;
    bool back_coarse = false;
};

}  // namespace mg
