// One level of a layer: where its inputs come from, its weights in the order the inner loops read
// them, and the way of gradients back to the levels below.
//
// What is read from the coarser level is upsampled (nearest) and convolved by k x k; the four
// positions within a coarse cell see the coarse grid through kernels of (k/2 + 1)² taps, sums of
// the original weights. So this part is done on the coarse grid, with 4/9 of the multiplications
// for k = 3, and is merged into the fine grid.
#pragma once

#include <vector>

#include "gemm.h"
#include "grid.h"
#include "threads.h"

namespace mg {

struct Shape {
    long C, H, W;
};

// The numbers of a call, as Python hands them over.
struct Call {
    long dims, kernel, time, batch, lowest_in, inputs, lowest_out, outputs, threads, flags;
    const Shape* in;
    const Shape* out;
    const int64_t* group;  // samples that are stacked, for every output level

    explicit Call(const int64_t* meta) {
        dims = meta[0], kernel = meta[1], time = meta[2], batch = meta[3];
        lowest_in = meta[4], inputs = meta[5], lowest_out = meta[6], outputs = meta[7];
        threads = meta[8], flags = meta[9];
        static_assert(sizeof(Shape) == 3 * sizeof(int64_t), "shapes are read as they come");
        in = (const Shape*)(meta + 10);
        out = in + inputs;
        group = (const int64_t*)(out + outputs);
    }
    int input_at(long level) const {
        long i = level - lowest_in;
        return 0 <= i && i < inputs ? int(i) : -1;
    }
};

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

struct Level {
    const Call& call;
    long index, group, groups;
    int up, same, pool;               // which input feeds it, or -1
    long Cu = 0, Cs = 0, Cp = 0, Ch;  // channels from each, and of the recurrence
    long Cin, Cf, O;                  // read from below; on the fine grid; written
    long ph, pw, tall, halves;
    CoarseAxis rows, columns;
    Grid fine, coarse;
    long taps, coarse_taps[4] = {}, coarse_first[4] = {}, coarse_terms = 0;
    std::vector<long> coarse_tap[4];  // on which tap of the coarse grid each tap falls
    std::vector<int> offsets, coarse_offsets, back_offsets, back_coarse_offsets;
    std::vector<float> packed, coarse_packed, back_packed, back_coarse_packed;
    long back_first = 0;  // fine channels from here on get a gradient

    // `samples` in all, `hidden` channels of recurrence (or 0), `written` channels.
    Level(const Call& call, long index, long samples, long hidden, long written)
        : call(call), index(index), group(call.group[index]), Ch(hidden), O(written),
          ph(call.dims == 2 ? call.kernel / 2 : 0), pw(call.kernel / 2), tall(call.dims == 2),
          halves(call.dims == 2 ? 4 : 2), rows(ph), columns(pw) {
        groups = (samples + group - 1) / group;
        long level = call.lowest_out + index;
        up = call.input_at(level - 1), same = call.input_at(level), pool = call.input_at(level + 1);
        if (up >= 0) Cu = call.in[up].C;
        if (same >= 0) Cs = call.in[same].C;
        if (pool >= 0) Cp = call.in[pool].C;
        Cin = Cu + Cs + Cp, Cf = Cs + Cp + Ch;
        const Shape& shape = call.out[index];
        fine = Grid(shape.H, shape.W, ph, pw, group);
        taps = (2 * ph + 1) * (2 * pw + 1);
        offsets.resize(Cf * taps);
        for (long k = 0; k < taps; k++)
            for (long c = 0, s = shift(k); c < Cf; c++)
                offsets[c * taps + k] = int(c * fine.stride + s);
        if (up >= 0) lay_out_coarse();
    }

    long shift(long tap) const {
        return (tap / (2 * pw + 1) - ph) * fine.pitch + tap % (2 * pw + 1) - pw;
    }

    void lay_out_coarse() {
        const Shape& shape = call.in[up];
        coarse = Grid(shape.H, shape.W, (ph + 1) / 2, (pw + 1) / 2, group);
        for (long half = 0; half < halves; half++) {
            long a = half / 2, b = half % 2;
            coarse_taps[half] = rows.count[a] * columns.count[b];
            coarse_first[half] = coarse_terms;
            coarse_terms += Cu * coarse_taps[half];
            for (long k = 0, width = 2 * pw + 1; k < taps; k++)
                coarse_tap[half].push_back(rows.tap(a, k / width) * columns.count[b] +
                                           columns.tap(b, k % width));
            std::vector<int> shifts;
            for (long e = 0; e < coarse_taps[half]; e++)
                shifts.push_back(int(coarse_shift(half, e)));
            for (long c = 0; c < Cu; c++)
                for (int shift : shifts) coarse_offsets.push_back(int(c * coarse.stride) + shift);
        }
    }

    long coarse_shift(long half, long e) const {
        long a = half / 2, b = half % 2;
        return (rows.lowest[a] + e / columns.count[b]) * coarse.pitch + columns.lowest[b] +
               e % columns.count[b];
    }
    // Row of the weights of output o that begins with fine channel c, and one weight of it.
    float weight(const float* input, const float* hidden, long o, long c, long tap) const {
        return c < Cs + Cp ? input[(o * Cin + Cu + c) * taps + tap]
                           : hidden[(o * Ch + c - Cs - Cp) * taps + tap];
    }

    // weights (O, Cin, taps) and, with a recurrence, (O, Ch, taps), into blocks of outputs.
    void pack_forward(const float* input, const float* hidden) {
        packed.resize(Cf * taps * O);
        coarse_packed.assign(coarse_terms * O, 0.0f);
        float* to = packed.data();
        long blocks = block_count(O), first = 0, below = (Cs + Cp) * taps;
        for (long b = 0; b < blocks; b++) {
            int size = block_size(O, blocks, b);
            to = turn(input + (first * Cin + Cu) * taps, Cin * taps, below, size, to);
            to = turn(hidden + first * Ch * taps, Ch * taps, Ch * taps, size, to);
            for (long half = 0; half < halves && up >= 0; half++)
                fold(input, half, first, size,
                     &coarse_packed[coarse_first[half] * O + first * Cu * coarse_taps[half]]);
            first += size;
        }
    }

    // [size rows][count] to [count][size].
    static float* turn(const float* rows, long stride, long count, int size, float* to) {
        for (long r = 0; r < count; r++)
            for (int j = 0; j < size; j++) *to++ = rows[j * stride + r];
        return to;
    }

    // Weights on the coarse grid of outputs first .. first + size: [channel][tap][output].
    void fold(const float* input, long half, long first, long size, float* to) const {
        for (long c = 0; c < Cu; c++, to += coarse_taps[half] * size)
            for (long k = 0; k < taps; k++)
                for (long j = 0; j < size; j++)
                    to[coarse_tap[half][k] * size + j] += input[((first + j) * Cin + c) * taps + k];
    }

    // For the gradient of the inputs: of fine channels from `first` on, and of the coarse ones.
    void pack_backward(const float* input, const float* hidden, long first, bool coarse_too) {
        back_first = first;
        long C = Cf - first;
        std::vector<float> matrix(O * taps * C);
        back_offsets.reserve(O * taps);
        for (long o = 0; o < O; o++)
            for (long k = 0; k < taps; k++) {
                back_offsets.push_back(int(o * fine.stride - shift(k)));
                for (long c = 0; c < C; c++)
                    matrix[(o * taps + k) * C + c] = weight(input, hidden, o, first + c, k);
            }
        back_packed.resize(matrix.size());
        pack(matrix.data(), O * taps, C, back_packed.data());
        if (up < 0 || !coarse_too) return;
        std::vector<float> folded(coarse_terms * O), turned(coarse_terms * O);
        float* to = turned.data();
        for (long half = 0; half < halves; half++) {
            float* from = &folded[coarse_first[half] * O];
            fold(input, half, 0, O, from);
            for (long o = 0; o < O; o++)
                for (long e = 0; e < coarse_taps[half]; e++) {
                    back_coarse_offsets.push_back(
                        int((half * O + o) * coarse.stride - coarse_shift(half, e)));
                    for (long c = 0; c < Cu; c++) *to++ = from[(c * coarse_taps[half] + e) * O + o];
                }
        }
        back_coarse_packed.resize(turned.size());
        pack(turned.data(), coarse_terms * O / Cu, Cu, back_coarse_packed.data());
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
        });
        each(same, Cs, [&](long c, const float* from, long jump) {
            insert(fine, x + c * fine.stride, from, n, jump);
        });
        each(pool, Cp, [&](long c, const float* from, long jump) {
            insert_pooled(fine, x + (Cs + c) * fine.stride, from, n, jump, tall);
        });
    }

    // out[o][q] from planes x (and, by way of `parts`, x_coarse).
    void forward(const float* x, const float* x_coarse, const float* bias, Finish finish,
                 float* parts, float* out, long n) const {
        out += fine.front;
        if (up >= 0) {
            const std::vector<float> none(O, 0.0f);
            for (long half = 0; half < halves; half++)
                convolve(x_coarse + coarse.front, &coarse_offsets[coarse_first[half]],
                         Cu * coarse_taps[half], &coarse_packed[coarse_first[half] * O], O,
                         none.data(), PLAIN, parts + half * O * coarse.stride, coarse.stride,
                         coarse.vectors(n));
            for (long o = 0; o < O; o++)
                merge(fine, coarse, parts + o * coarse.stride, O * coarse.stride, tall, bias[o],
                      out + o * fine.stride, n);
        }
        convolve(x + fine.front, offsets.data(), Cf * taps, packed.data(), O,
                 up >= 0 ? nullptr : bias, finish, out, fine.stride, fine.vectors(n));
    }

    // Planes dy to their parts on the coarse grid.
    void split_parts(const float* dy, float* parts, long n) const {
        for (long o = 0; o < O; o++)
            split(fine, coarse, dy + fine.front + o * fine.stride,
                  parts + coarse.front + o * coarse.stride, O * coarse.stride, tall, n);
    }

    // Floats of a weight gradient as accumulated: fine [term][o], coarse [half][term][o], bias [o].
    long gradient_size() const { return round_up((Cf * taps + coarse_terms + 1) * O, 16); }
    float* bias_part(float* dw) const { return dw + (Cf * taps + coarse_terms) * O; }

    void weight_gradients(const float* x, const float* x_coarse, const float* dy,
                          const float* parts, long n, float* dw) const {
        weight_gradient(x + fine.front, offsets.data(), Cf * taps, dy + fine.front, fine.stride, O,
                        fine.vectors(n), dw);
        if (up < 0) return;
        for (long half = 0; half < halves; half++)
            weight_gradient(x_coarse + coarse.front, &coarse_offsets[coarse_first[half]],
                            Cu * coarse_taps[half],
                            parts + coarse.front + half * O * coarse.stride, coarse.stride, O,
                            coarse.vectors(n), dw + (Cf * taps + coarse_first[half]) * O);
    }

    // Adds up the threads' gradients, in their order, and lays them out like the weights.
    void unpack_gradients(const float* dw, long count, float* input, float* hidden,
                          float* bias) const {
        std::vector<float> total(dw, dw + gradient_size());
        for (long i = 1; i < count; i++)
            for (long j = 0; j < gradient_size(); j++) total[j] += dw[i * gradient_size() + j];
        for (long c = 0; c < Cf; c++) {
            bool recurrent = c >= Cs + Cp;
            float* to = recurrent ? hidden : input;
            if (!to) continue;
            long C = recurrent ? Ch : Cin, at = recurrent ? c - Cs - Cp : Cu + c;
            for (long k = 0; k < taps; k++)
                for (long o = 0; o < O; o++)
                    to[(o * C + at) * taps + k] = total[(c * taps + k) * O + o];
        }
        if (bias) std::memcpy(bias, bias_part(total.data()), O * sizeof(float));
        if (!input) return;
        const float* coarse_total = &total[Cf * taps * O];
        for (long c = 0; c < Cu; c++)
            for (long k = 0; k < taps; k++)
                for (long o = 0; o < O; o++) {
                    float s = 0;
                    for (long half = 0; half < halves; half++)
                        s += coarse_total[(coarse_first[half] + c * coarse_taps[half] +
                                           coarse_tap[half][k]) * O + o];
                    input[(o * Cin + c) * taps + k] = s;
                }
    }

    // Gradients of the fine channels from back_first on, out[c - back_first][q].
    void backward_fine(const float* dy, float* dx, long n) const {
        const std::vector<float> none(Cf + 1, 0.0f);
        convolve(dy + fine.front, back_offsets.data(), O * taps, back_packed.data(),
                 Cf - back_first, none.data(), PLAIN, dx + fine.front, fine.stride,
                 fine.vectors(n));
    }

    // Adds (or, as the first reader of a level, stores) planes dx [same, pooled] into the inputs'
    // gradients, and the coarse ones from `parts` by way of dx_coarse. Null: not wanted.
    void scatter(const float* const* inputs, float* const* grads, long first, long n,
                 const float* dx, const float* parts, float* dx_coarse) const {
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
        if (up < 0 || !grads[up]) return;
        const std::vector<float> none(Cu, 0.0f);
        convolve(parts + coarse.front, back_coarse_offsets.data(), long(back_coarse_offsets.size()),
                 back_coarse_packed.data(), Cu, none.data(), PLAIN, dx_coarse + coarse.front,
                 coarse.stride, coarse.vectors(n));
        each(up, Cu, [&](long c, long at, long jump, bool add, float* to) {
            const float* from = dx_coarse + coarse.front + c * coarse.stride;
            (add ? extract_added : extract)(coarse, from, to + at, n, jump);
        });
    }
};

}  // namespace mg
