// Tile schedule clusters-2x1. Generated: change the spec, not this file.
//
//   for (sched::clusters_2x1 s(worker, rank, p_M, p_N); s.valid(); s.next()) { auto t = s.tile(); ... }
//
// A worker is a cluster of 2 CTAs. Items: ((((M + 127) // 128) + 1) // 2) * ((N + 255) // 256).
// Each tile is decoded from its index: about 14 instructions; to carry 2 digits of it would take 16.
#pragma once
#ifndef SCHED_FUNCTION
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SCHED_FUNCTION __host__ __device__ __forceinline__
#else
#define SCHED_FUNCTION inline
#endif
#endif
#ifndef SCHED_DETAIL
#define SCHED_DETAIL
namespace sched {
namespace detail {
// Upper half of the full product.
SCHED_FUNCTION unsigned mulhi(unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return (unsigned)(((unsigned long long)a * b) >> 32);
#endif
}
SCHED_FUNCTION unsigned long long mulhi(unsigned long long a, unsigned long long b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
#endif
}
// Upper half of a * b + c: one instruction, which compilers miss.
SCHED_FUNCTION unsigned madhi(unsigned a, unsigned b, unsigned long long c) {
#ifdef __CUDA_ARCH__
  unsigned high;
  asm("{.reg .b64 w; .reg .b32 low; mul.wide.u32 w, %1, %2; add.u64 w, w, %3; mov.b64 {low, %0}, w;}"
      : "=r"(high)
      : "r"(a), "r"(b), "l"(c));
  return high;
#else
  return (unsigned)(((unsigned long long)a * b + c) >> 32);
#endif
}
// 1 / d, at most one unit in the last place off.
SCHED_FUNCTION float rcp(unsigned d) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"((float)d));
  return result;
#else
  return 1.0f / (float)d;
#endif
}
// a / b, where a is below 2^21: no whole number is within what floating point loses of (a + 1/2) / b.
SCHED_FUNCTION unsigned fdiv(unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
  return (unsigned)(((float)a + 0.5f) * rcp(b));
#else
  return a / b;
#endif
}
// (2^(32 + k) - 1) / d, where that fits 32 bits and d is at most 2^20.
SCHED_FUNCTION unsigned recip(unsigned d, unsigned k) {
#ifdef __CUDA_ARCH__
  const unsigned low = (unsigned)__uint_as_float(__float_as_uint(rcp(d)) + (k << 23) + ((32u << 23) - 4u));
  const unsigned left = ~(low * d), more = __umulhi(left, low) >> k;
  return low + more + (left - more * d >= d ? 1u : 0u);
#else
  return (unsigned)(((1ull << (32u + k)) - 1u) / d);
#endif
}
// -a, which compilers would take apart again to subtract, by one instruction more.
SCHED_FUNCTION unsigned neg(unsigned a) {
#ifdef __CUDA_ARCH__
  asm("neg.s32 %0, %1;" : "=r"(a) : "r"(a));
  return a;
#else
  return 0u - a;
#endif
}
SCHED_FUNCTION unsigned long long neg(unsigned long long a) { return 0ull - a; }
// Number of the highest bit that is set, 0 if none is.
SCHED_FUNCTION unsigned log2(unsigned a) {
#ifdef __CUDA_ARCH__
  return 31u - (unsigned)__clz((int)(a | 1u));
#else
  unsigned n = 0;
  while (a >>= 1) ++n;
  return n;
#endif
}
// The bits of `low` in `mask`, of `high` elsewhere: one instruction, which compilers miss.
SCHED_FUNCTION unsigned merge(unsigned high, unsigned low, unsigned mask) {
#ifdef __CUDA_ARCH__
  unsigned merged;
  asm("lop3.b32 %0, %1, %2, %3, 0xD8;" : "=r"(merged) : "r"(high), "r"(low), "r"(mask));
  return merged;
#else
  return (high & ~mask) | (low & mask);
#endif
}
// c ? a : b without a branch; by the macro, which on the host computes no more than it must.
SCHED_FUNCTION unsigned choose(bool c, unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
  asm("{.reg .pred p; setp.ne.u32 p, %1, 0; selp.b32 %0, %2, %3, p;}" : "=r"(a) : "r"((unsigned)c), "r"(a), "r"(b));
  return a;
#else
  return c ? a : b;
#endif
}
SCHED_FUNCTION unsigned long long choose(bool c, unsigned long long a, unsigned long long b) {
#ifdef __CUDA_ARCH__
  asm("{.reg .pred p; setp.ne.u32 p, %1, 0; selp.b64 %0, %2, %3, p;}" : "=l"(a) : "r"((unsigned)c), "l"(a), "l"(b));
  return a;
#else
  return c ? a : b;
#endif
}
SCHED_FUNCTION int choose(bool c, int a, int b) { return (int)choose(c, (unsigned)a, (unsigned)b); }
SCHED_FUNCTION long long choose(bool c, long long a, long long b) {
  return (long long)choose(c, (unsigned long long)a, (unsigned long long)b);
}
#ifdef __CUDA_ARCH__
#define SCHED_CHOOSE(c, a, b) ::sched::detail::choose(c, a, b)
#else
#define SCHED_CHOOSE(c, a, b) ((c) ? (a) : (b))
#endif
// The same value. In a loop compilers would keep what follows from an index and advance it too, which costs more.
SCHED_FUNCTION unsigned opaque(unsigned index) {
#ifdef __CUDA_ARCH__
  asm("mov.b32 %0, %1;" : "=r"(index) : "r"(index));
#endif
  return index;
}
SCHED_FUNCTION unsigned long long opaque(unsigned long long index) {
#ifdef __CUDA_ARCH__
  asm("mov.b64 %0, %1;" : "=l"(index) : "l"(index));
#endif
  return index;
}
}  // namespace detail
}  // namespace sched
#endif
namespace sched {
struct clusters_2x1 {
  using Index = unsigned;
  struct Tile { int m; int n; };

  unsigned rank;  // this CTA's rank in its cluster
  unsigned p_M;  // run-time parameter
  unsigned p_N;  // run-time parameter
  unsigned k0;  // computed once
  unsigned k1;  // computed once
  unsigned k2;  // computed once
  unsigned k3;  // computed once
  unsigned k4;  // computed once
  unsigned k5;  // computed once
  unsigned long long k6;  // computed once
  unsigned k7;  // computed once
  unsigned k8;  // computed once
  unsigned k9;  // computed once
  unsigned k10;  // computed once
  unsigned long long k11;  // computed once
  Index index;  // the current work index

  SCHED_FUNCTION clusters_2x1(unsigned worker, unsigned rank_, unsigned p_M_, unsigned p_N_) : rank(rank_), p_M(p_M_), p_N(p_N_) {
    k0 = (p_M + 127u) >> 7u;
    k1 = ((k0 + 1u) >> 1u) * ((p_N + 255u) >> 8u);
    k2 = ((p_N + 255u) >> 8u) * 4u;
    k3 = detail::neg(k2);
    k4 = detail::log2((k2 - 1u));
    k5 = detail::recip(k2, k4);
    k6 = (unsigned long long)k5;
    k7 = ((((k0 + 1u) >> 1u) + 3u) & 3u) + 1u;
    k8 = detail::neg(k7);
    k9 = ((((k0 + 1u) >> 1u) + 3u) >> 2u) - 1u;
    k10 = detail::fdiv(2097151u, k7) * 2048u;
    k11 = (unsigned long long)k10;
    index = SCHED_CHOOSE((worker < 66u), worker, k1);
  }
  // What a kernel gets passed, whatever the dispatch, so that its source is the same for all of them.
  struct Arguments { unsigned p_M; unsigned p_N; };
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  // In a grid along x; under a queue, by all threads of the CTA, and once in a kernel.
  __device__ explicit clusters_2x1(const Arguments& given) : clusters_2x1(blockIdx.x / 2u, blockIdx.x % 2u, given.p_M, given.p_N) {}
#endif
  // Whether there is a current tile. Ask before `tile()`.
  SCHED_FUNCTION bool valid() const {
    return index < k1;
  }
  SCHED_FUNCTION void next() {
    index = detail::opaque(index + 66u);
  }
  SCHED_FUNCTION Tile tile() const { return index_to_tile(index); }
  // The number of work items.
  SCHED_FUNCTION Index items() const {
    return k1;
  }
  SCHED_FUNCTION Tile index_to_tile(Index i) const {
    const unsigned t0 = detail::madhi(i, k5, k6);
    const unsigned t1 = t0 >> k4;
    const unsigned t2 = (t1 * k3) + i;
    const bool t3 = t1 == k9;
    const unsigned t4 = t2 >> 2u;
    const unsigned t5 = detail::madhi(t2, k10, k11);
    const unsigned t6 = SCHED_CHOOSE(t3, t5, t4);
    const unsigned t7 = (((t6 * SCHED_CHOOSE(t3, k8, (0u - 4u))) + ((t1 * 4u) + t2)) * 2u) + rank;
    return Tile{(int)t7, (int)t6};
  }
  // Whether a scheduled tile lies in the space; false for padding.
  SCHED_FUNCTION bool in_bounds(Tile tile) const {
    return ((unsigned)tile.m) < k0;
  }
  // The work index that visits a scheduled tile.
  SCHED_FUNCTION Index tile_to_index(Tile tile) const {
    const unsigned t0 = (unsigned)tile.m;
    const unsigned t1 = t0 >> 3u;
    const unsigned t2 = ((t1 * k2) + (((unsigned)tile.n) * SCHED_CHOOSE((t1 == k9), k7, 4u))) + ((t0 >> 1u) & 3u);
    return t2;
  }
};
}  // namespace sched
