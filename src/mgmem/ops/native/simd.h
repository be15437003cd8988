// Vectors of floats by compiler extension: 16 lanes with AVX-512, 8 with AVX, else 4 (SSE, NEON).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace mg {

#if defined(__AVX512F__)
constexpr long LANES = 16;
#elif defined(__AVX__)
constexpr long LANES = 8;
#else
constexpr long LANES = 4;
#endif

// Registers for accumulators: 24 of 32, or 12 of 16 where there are only 16.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int ACCUMULATORS = 24;
constexpr int MAX_BLOCK = 8;
#else
constexpr int ACCUMULATORS = 12;
constexpr int MAX_BLOCK = 4;
#endif

typedef float vec __attribute__((vector_size(LANES * 4), may_alias));
typedef float vec_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * 4), may_alias));
typedef float vec4 __attribute__((vector_size(16), may_alias));
typedef float vec4_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

inline long round_up(long n, long to) { return (n + to - 1) / to * to; }
inline vec load(const float* p) { return *(const vec_unaligned*)p; }
inline void store(float* p, vec v) { *(vec_unaligned*)p = v; }
inline vec splat(float s) { return s - vec{}; }
inline vec masked(vec v, vec mask) { return (vec)((ivec)v & (ivec)mask); }
inline vec relu(vec v) { return v < 0.0f ? vec{} : v; }  // keeps NaN, as PyTorch does

#define MG_SHUFFLE __builtin_shufflevector

// Vectors of 1 (a plain float), 4, 8 or 16 lanes at any address.
template <int N>
using Lanes = std::integral_constant<int, N>;

template <int N>
struct LanesOf {
    typedef float type __attribute__((vector_size(N * 4)));
};
template <>
struct LanesOf<1> {
    typedef float type;
};
template <int N>
using lanes_of = typename LanesOf<N>::type;

template <class V>
inline V get(const float* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class V>
inline void put(float* p, V v) { std::memcpy(p, &v, sizeof v); }

// e0 o0 e1 o1 ... of two vectors, in two halves; and back.
template <class V, int... I>
inline void interleave(V e, V o, V& low, V& high, std::integer_sequence<int, I...>) {
    constexpr int n = sizeof...(I);
    low = MG_SHUFFLE(e, o, (I / 2 + I % 2 * n)...);
    high = MG_SHUFFLE(e, o, (n / 2 + I / 2 + I % 2 * n)...);
}
template <class V, int... I>
inline void deinterleave(V low, V high, V& e, V& o, std::integer_sequence<int, I...>) {
    e = MG_SHUFFLE(low, high, (2 * I)...);
    o = MG_SHUFFLE(low, high, (2 * I + 1)...);
}
template <class V>
inline void interleave(V e, V o, V& low, V& high) {
    interleave(e, o, low, high, std::make_integer_sequence<int, sizeof(V) / 4>());
}
template <class V>
inline void deinterleave(V low, V high, V& e, V& o) {
    deinterleave(low, high, e, o, std::make_integer_sequence<int, sizeof(V) / 4>());
}

// The even and the odd ones of twice as many floats.
template <class V>
inline void get_pairs(const float* p, V& e, V& o) {
    if constexpr (sizeof(V) == 4)
        e = p[0], o = p[1];
    else
        deinterleave(get<V>(p), get<V>(p + sizeof(V) / 4), e, o);
}
template <class V>
inline void put_pairs(float* p, V e, V o) {
    V low, high;
    if constexpr (sizeof(V) == 4)
        low = e, high = o;
    else
        interleave(e, o, low, high);
    put<V>(p, low), put<V>(p + sizeof(V) / 4, high);
}

inline vec4 fold(vec a) {
#if defined(__AVX512F__)
    auto half = MG_SHUFFLE(a, a, 0, 1, 2, 3, 4, 5, 6, 7) +
                MG_SHUFFLE(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
    return MG_SHUFFLE(half, half, 0, 1, 2, 3) + MG_SHUFFLE(half, half, 4, 5, 6, 7);
#elif defined(__AVX__)
    return MG_SHUFFLE(a, a, 0, 1, 2, 3) + MG_SHUFFLE(a, a, 4, 5, 6, 7);
#else
    return a;
#endif
}

// The sums of the lanes of four vectors.
inline vec4 sums(vec a, vec b, vec c, vec d) {
    vec4 p = fold(a), q = fold(b), r = fold(c), s = fold(d);
    vec4 pq = MG_SHUFFLE(p, q, 0, 4, 1, 5) + MG_SHUFFLE(p, q, 2, 6, 3, 7);
    vec4 rs = MG_SHUFFLE(r, s, 0, 4, 1, 5) + MG_SHUFFLE(r, s, 2, 6, 3, 7);
    return MG_SHUFFLE(pq, rs, 0, 1, 4, 5) + MG_SHUFFLE(pq, rs, 2, 3, 6, 7);
}

inline float sum(vec a) {
    vec4 s = fold(a);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

inline vec reciprocal(vec d) {
#if defined(__AVX512F__)
    vec y = (vec)_mm512_maskz_rcp14_ps(0xffff, (__m512)d);  // 14 bits; a Newton step doubles them
    return y + y * (1.0f - d * y);
#else
    return 1.0f / d;
#endif
}

// 2^n and exp(r) - 1 with x = n ln 2 + r, |r| <= ln 2 / 2. The two make exp and expm1 without
// cancellation. |x| must be below 88.
inline void split_exp(vec x, vec& power, vec& rest) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    vec t = x * 1.44269504f + magic;
    vec n = t - magic;
    vec r = x - n * 0.693145752f - n * 1.42860677e-6f;
    vec p = r * (1.0f / 720) + (1.0f / 120);
    p = p * r + (1.0f / 24);
    p = p * r + (1.0f / 6);
    p = p * r + 0.5f;
    rest = r * r * p + r;
    power = (vec)(((ivec)t << 23) + 0x3f800000);
}

inline vec clamp(vec x, float limit) {  // comparisons this way round let NaN through
    x = x > limit ? splat(limit) : x;
    return x < -limit ? splat(-limit) : x;
}

inline vec sigmoid(vec x) {
    vec power, rest;
    split_exp(clamp(-x, 87.0f), power, rest);
    return reciprocal(1.0f + (power + power * rest));
}

inline vec tanh(vec x) {
    vec power, rest;
    split_exp(clamp(x + x, 20.0f), power, rest);
    vec minus_one = power * rest + (power - 1.0f);
    return minus_one * reciprocal(minus_one + 2.0f);
}

}  // namespace mg
