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
struct hilbert_square {
  using Index = unsigned;
  struct Tile { int m; int n; };

  Index index;  // the current work index

  SCHED_FUNCTION explicit hilbert_square(unsigned worker) {
    index = SCHED_CHOOSE((worker < 132u), worker, 4096u);
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
    index = detail::opaque(index + 132u);
  }
  SCHED_FUNCTION Tile tile() const { return index_to_tile(index); }
  // The number of work items.
  SCHED_FUNCTION Index items() const {
    return 4096u;
  }
  SCHED_FUNCTION Tile index_to_tile(Index i) const {
    const bool t0 = (i & 4u) == 0u;
    const bool t1 = !t0;
    const bool t2 = !((i & 8u) == 0u);
    const bool t3 = (i & 16u) == 0u;
    const bool t4 = !t3;
    const bool t5 = !((i & 32u) == 0u);
    const bool t6 = (i & 64u) == 0u;
    const bool t7 = !t6;
    const bool t8 = !((i & 128u) == 0u);
    const bool t9 = (i & 256u) == 0u;
    const bool t10 = !t9;
    const bool t11 = !((i & 512u) == 0u);
    const bool t12 = (i & 1024u) == 0u;
    const bool t13 = !t12;
    const bool t14 = 2048u <= i;
    const bool t15 = !((!t14) != t13);
    const bool t16 = !((t15 != t11) != t10);
    const bool t17 = !((t16 != t8) != t7);
    const bool t18 = !((t17 != t5) != t4);
    const bool t19 = !((i & 1u) == 0u);
    const bool t20 = t12 ? false : t14;
    const bool t21 = t20 != t11;
    const bool t22 = t9 ? t20 : t21;
    const bool t23 = t22 != t8;
    const bool t24 = t6 ? t22 : t23;
    const bool t25 = t24 != t5;
    const bool t26 = t3 ? t24 : t25;
    const bool t27 = t26 != t2;
    const bool t28 = ((t0 ? t26 : t27) != (!((i & 2u) == 0u))) != (t19 && (!((t18 != t2) != t1)));
    const bool t29 = t27 != (t1 && t18);
    const bool t30 = t25 != (t4 && t17);
    const bool t31 = t23 != (t7 && t16);
    const bool t32 = t21 != (t10 && t15);
    const bool t33 = t14 != t13;
    const unsigned t34 = SCHED_CHOOSE(t33, SCHED_CHOOSE(t32, 48u, 32u), SCHED_CHOOSE(t32, 16u, 0u));
    const unsigned t35 = t34 + SCHED_CHOOSE(t31, SCHED_CHOOSE(t30, 12u, 8u), SCHED_CHOOSE(t30, 4u, 0u));
    const unsigned t36 = t35 + SCHED_CHOOSE(t29, SCHED_CHOOSE(t28, 3u, 2u), SCHED_CHOOSE(t28, 1u, 0u));
    const bool t37 = t28 != t19;
    const unsigned t38 = SCHED_CHOOSE((t29 != t1), SCHED_CHOOSE(t37, 3u, 2u), SCHED_CHOOSE(t37, 1u, 0u));
    const bool t39 = t30 != t4;
    const unsigned t40 = SCHED_CHOOSE((t31 != t7), SCHED_CHOOSE(t39, 12u, 8u), SCHED_CHOOSE(t39, 4u, 0u));
    const bool t41 = t32 != t10;
    const unsigned t42 = SCHED_CHOOSE((t33 != t13), SCHED_CHOOSE(t41, 48u, 32u), SCHED_CHOOSE(t41, 16u, 0u));
    return Tile{(int)t36, (int)((t42 + t40) + t38)};
  }
  // Whether a scheduled tile lies in the space; false for padding.
  SCHED_FUNCTION bool in_bounds(Tile) const {
    return true;
  }
  // The work index that visits a scheduled tile.
  SCHED_FUNCTION Index tile_to_index(Tile tile) const {
    const unsigned t0 = (unsigned)tile.n;
    const bool t1 = !((t0 & 1u) == 0u);
    const unsigned t2 = (unsigned)tile.m;
    const bool t3 = !((t2 & 1u) == 0u);
    const bool t4 = t3 != t1;
    const bool t5 = !((t0 & 2u) == 0u);
    const bool t6 = !((t2 & 2u) == 0u);
    const bool t7 = t6 != t5;
    const bool t8 = !((t0 & 4u) == 0u);
    const bool t9 = !((t2 & 4u) == 0u);
    const bool t10 = t9 != t8;
    const bool t11 = !((t0 & 8u) == 0u);
    const bool t12 = !((t2 & 8u) == 0u);
    const bool t13 = t12 != t11;
    const bool t14 = !((t0 & 16u) == 0u);
    const bool t15 = !((t2 & 16u) == 0u);
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
    const unsigned t35 = SCHED_CHOOSE(((t7 ? t32 : t33) != ((((!t31) != t34) != t7) ? t3 : t1)), SCHED_CHOOSE(t4, 3u, 2u), SCHED_CHOOSE(t4, 1u, 0u));
    const unsigned t36 = SCHED_CHOOSE(t34, SCHED_CHOOSE(t7, 12u, 8u), SCHED_CHOOSE(t7, 4u, 0u)) + t35;
    const unsigned t37 = SCHED_CHOOSE(t30, SCHED_CHOOSE(t10, 48u, 32u), SCHED_CHOOSE(t10, 16u, 0u));
    const unsigned t38 = SCHED_CHOOSE(t26, SCHED_CHOOSE(t13, 192u, 128u), SCHED_CHOOSE(t13, 64u, 0u));
    const unsigned t39 = SCHED_CHOOSE(t22, SCHED_CHOOSE(t16, 768u, 512u), SCHED_CHOOSE(t16, 256u, 0u));
    const unsigned t40 = SCHED_CHOOSE(t17, SCHED_CHOOSE(t18, 3072u, 2048u), SCHED_CHOOSE(t18, 1024u, 0u));
    return ((t40 + t39) + (t38 + t37)) + t36;
  }
};
}  // namespace sched
