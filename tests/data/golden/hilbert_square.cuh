// Tile schedule hilbert-square. Generated: change the spec, not this file.
//
//   for (sched::hilbert_square s(worker); s.valid(); s.next()) { auto t = s.tile(); ... }
//
// A worker is a CTA. Items: 4096.
// Each tile is decoded from its index: about 82 instructions; to carry 12 digits of it would take 105.
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
struct hilbert_square {
  using Index = unsigned;
  struct Tile { int m; int n; };

  Index index;  // the current work index

  SCHED_FUNCTION explicit hilbert_square(unsigned worker) {
    index = (worker < 132u) ? worker : 4096u;
  }
  // What a kernel gets passed, whatever the dispatch, so that its source is the same for all of them.
  struct Arguments { };
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  // In a grid along x; under a queue, by all threads of the CTA, and once in a kernel.
  __device__ explicit hilbert_square(const Arguments&) : hilbert_square(blockIdx.x) {}
#endif
  // Whether there is a current tile. Ask before `tile()`.
  SCHED_FUNCTION bool valid() const {
    return index < 4096u;
  }
  SCHED_FUNCTION void next() {
    index = index + 132u;
  }
  SCHED_FUNCTION Tile tile() const { return index_to_tile(detail::opaque(index)); }
  // The number of work items.
  SCHED_FUNCTION Index items() const {
    return 4096u;
  }
  SCHED_FUNCTION Tile index_to_tile(Index i) const {
    const bool t0 = 4u <= (i & 7u);
    const bool t1 = 8u <= (i & 15u);
    const bool t2 = 16u <= (i & 31u);
    const bool t3 = 32u <= (i & 63u);
    const bool t4 = 64u <= (i & 127u);
    const bool t5 = 128u <= (i & 255u);
    const bool t6 = 256u <= (i & 511u);
    const bool t7 = 512u <= (i & 1023u);
    const bool t8 = 1024u <= (i & 2047u);
    const bool t9 = 2048u <= i;
    const bool t10 = !((!t9) != t8);
    const bool t11 = !((t10 != t7) != t6);
    const bool t12 = !((t11 != t5) != t4);
    const bool t13 = !((t12 != t3) != t2);
    const bool t14 = 1u <= (i & 1u);
    const bool t15 = t8 ? t9 : false;
    const bool t16 = t15 != t7;
    const bool t17 = t6 ? t16 : t15;
    const bool t18 = t17 != t5;
    const bool t19 = t4 ? t18 : t17;
    const bool t20 = t19 != t3;
    const bool t21 = t2 ? t20 : t19;
    const bool t22 = t21 != t1;
    const bool t23 = ((t0 ? t22 : t21) != (2u <= (i & 3u))) != (t14 && (!((t13 != t1) != t0)));
    const bool t24 = t22 != (t0 && t13);
    const bool t25 = t20 != (t2 && t12);
    const bool t26 = t18 != (t4 && t11);
    const bool t27 = t16 != (t6 && t10);
    const bool t28 = t9 != t8;
    const unsigned t29 = (t28 ? (t27 ? 48u : 32u) : (t27 ? 16u : 0u)) + (t26 ? (t25 ? 12u : 8u) : (t25 ? 4u : 0u));
    const bool t30 = t23 != t14;
    const bool t31 = t25 != t2;
    const bool t32 = t27 != t6;
    const unsigned t33 = ((t28 != t8) ? (t32 ? 48u : 32u) : (t32 ? 16u : 0u)) + ((t26 != t4) ? (t31 ? 12u : 8u) : (t31 ? 4u : 0u));
    return Tile{(int)(t29 + (t24 ? (t23 ? 3u : 2u) : (t23 ? 1u : 0u))), (int)(t33 + ((t24 != t0) ? (t30 ? 3u : 2u) : (t30 ? 1u : 0u)))};
  }
  // Whether a scheduled tile lies in the space; false for padding.
  SCHED_FUNCTION bool in_bounds(Tile) const {
    return true;
  }
  // The work index that visits a scheduled tile.
  SCHED_FUNCTION Index tile_to_index(Tile tile) const {
    const unsigned t0 = (unsigned)tile.n;
    const bool t1 = 1u <= (t0 & 1u);
    const unsigned t2 = (unsigned)tile.m;
    const bool t3 = 1u <= (t2 & 1u);
    const bool t4 = t3 != t1;
    const bool t5 = 2u <= (t0 & 3u);
    const bool t6 = 2u <= (t2 & 3u);
    const bool t7 = t6 != t5;
    const bool t8 = 4u <= (t0 & 7u);
    const bool t9 = 4u <= (t2 & 7u);
    const bool t10 = t9 != t8;
    const bool t11 = 8u <= (t0 & 15u);
    const bool t12 = 8u <= (t2 & 15u);
    const bool t13 = t12 != t11;
    const bool t14 = 16u <= (t0 & 31u);
    const bool t15 = 16u <= (t2 & 31u);
    const bool t16 = t15 != t14;
    const bool t17 = 32u <= t0;
    const bool t18 = (32u <= t2) != t17;
    const bool t19 = (!t17) != t18;
    const bool t20 = t19 ? t15 : t14;
    const bool t21 = t18 ? t17 : false;
    const bool t22 = t21 != t20;
    const bool t23 = ((!t19) != t22) != t16;
    const bool t24 = t23 ? t12 : t11;
    const bool t25 = t16 ? t20 : t21;
    const bool t26 = t25 != t24;
    const bool t27 = ((!t23) != t26) != t13;
    const bool t28 = t27 ? t9 : t8;
    const bool t29 = t13 ? t24 : t25;
    const bool t30 = t29 != t28;
    const bool t31 = ((!t27) != t30) != t10;
    const bool t32 = t31 ? t6 : t5;
    const bool t33 = t10 ? t28 : t29;
    const bool t34 = t33 != t32;
    const unsigned t35 = ((t7 ? t32 : t33) != ((((!t31) != t34) != t7) ? t3 : t1)) ? (t4 ? 3u : 2u) : (t4 ? 1u : 0u);
    const unsigned t36 = (t26 ? (t13 ? 192u : 128u) : (t13 ? 64u : 0u)) + (t30 ? (t10 ? 48u : 32u) : (t10 ? 16u : 0u));
    const unsigned t37 = (t17 ? (t18 ? 3072u : 2048u) : (t18 ? 1024u : 0u)) + (t22 ? (t16 ? 768u : 512u) : (t16 ? 256u : 0u));
    return (t37 + t36) + ((t34 ? (t7 ? 12u : 8u) : (t7 ? 4u : 0u)) + t35);
  }
};
}  // namespace sched
