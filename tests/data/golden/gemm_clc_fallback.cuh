// Tile schedule gemm-clc-fallback. Generated: change the spec, not this file.
//
//   for (sched::gemm_clc_fallback s(arguments); s.valid(); s.next()) { auto t = s.tile(); ... }
//
// by all threads of the worker, from `sched::gemm_clc_fallback::Arguments arguments`: the same kernel as under any dispatch.
// Or, where parts of the kernel walk on their own:
//
//   __shared__ sched::gemm_clc_fallback::Ring ring;
//   const sched::gemm_clc_fallback s(rank, p_m_tiles);
//   ring.init();  // all threads of the cluster
//   if (threadIdx.x == 0 && blockIdx.x % 2u == 0) ring.schedule(counter, s.items());  // a warp of its own
//   if (threadIdx.x == 32)
//     for (sched::gemm_clc_fallback::mma w(s, ring); w.valid(); w.next()) { auto t = w.tile(); ... }
//   if (threadIdx.x >= 64 && threadIdx.x < 192)
//     for (sched::gemm_clc_fallback::epilogue w(s, ring, threadIdx.x - 64); w.valid(); w.next()) { auto t = w.tile(); ... }
//
// Either way, walk to the end. Every consumer takes every item: a slot is free when all of them have read it.
// From sm_100 on launch one cluster of 2 CTAs for each item, along x; others cancel most of them.
// `counter` may be null there. Below, launch any number of clusters; `counter` is in global memory, zero
// before the first launch, and set back by every launch.
//
// A worker is a cluster of 2 CTAs. Items: ((m_tiles + 1) // 2) * 24.
// Each tile is decoded from its index: about 12 instructions.
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
#ifndef SCHED_QUEUE
#define SCHED_QUEUE
namespace sched {
namespace detail {
SCHED_FUNCTION bool first_thread() {
#ifdef __CUDA_ARCH__
  return (threadIdx.x | threadIdx.y | threadIdx.z) == 0;
#else
  return true;
#endif
}
SCHED_FUNCTION unsigned long long draw(unsigned long long* counter) {
#ifdef __CUDA_ARCH__
  return atomicAdd(counter, 1ull);
#else
  return (*counter)++;
#endif
}
SCHED_FUNCTION void cta_barrier() {
#ifdef __CUDA_ARCH__
  __syncthreads();
#endif
}
// Every thread of the cluster waits for the others, and sees what they wrote.
SCHED_FUNCTION void cluster_barrier() {
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// Writes to the same place of the shared memory of CTA `rank` of this cluster.
template <typename T>
SCHED_FUNCTION void cluster_store(T* place, T value, unsigned rank) {
#ifdef __CUDA_ARCH__
  const unsigned own = (unsigned)__cvta_generic_to_shared(place);
  unsigned other;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  if (sizeof(T) == 4) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(other), "r"((unsigned)value) : "memory");
  } else {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(other), "l"((unsigned long long)value) : "memory");
  }
#else
  (void)rank;
  *place = value;
#endif
}
}  // namespace detail
}  // namespace sched
#endif
#ifndef SCHED_DEVICE
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SCHED_DEVICE __device__ __forceinline__
#else
#define SCHED_DEVICE inline
#endif
#endif
namespace sched {
struct gemm_clc_fallback {
  using Index = unsigned;
  struct Tile { int m; int n; };
  struct Shared {
    alignas(16) unsigned char memory[24];  // an answer, and its barrier
    Index drawn[2];
#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
    const unsigned* answers;  // the CTA ids that the queue answers, 4294967295 at last
#endif
  };

  unsigned rank;  // this CTA's rank in its cluster
  unsigned p_m_tiles;  // run-time parameter
  unsigned k0;  // computed once
  unsigned k1;  // computed once
  unsigned k2;  // computed once
  unsigned k3;  // computed once
  unsigned long long k4;  // computed once
  unsigned k5;  // computed once
  Shared* shared;  // in shared memory
  unsigned* counter;  // below sm_100: in global memory, zero before the first launch
  unsigned turn;  // which slot is next, and the parity of the answer's barrier
  Index index;  // the current work index

  SCHED_FUNCTION gemm_clc_fallback(unsigned rank_, unsigned p_m_tiles_) : rank(rank_), p_m_tiles(p_m_tiles_) {
    const unsigned t0 = (p_m_tiles + 1u) >> 1u;
    k0 = (((t0 > 1u ? t0 : 1u) + 3u) & 3u) + 1u;
    k1 = detail::neg(k0);
    k2 = (((t0 > 1u ? t0 : 1u) + 3u) >> 2u) - 1u;
    k3 = detail::fdiv(2097151u, k0) * 2048u;
    k4 = (unsigned long long)k3;
    k5 = t0 * 24u;
  }
  // What a kernel gets passed, whatever the dispatch, so that its source is the same for all of them.
  struct Arguments { unsigned p_m_tiles; unsigned* counter; };
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  static __device__ Shared* storage() {
    __shared__ Shared shared;
    return &shared;
  }
  // In a grid along x; under a queue, by all threads of the CTA, and once in a kernel.
  __device__ explicit gemm_clc_fallback(const Arguments& given) : gemm_clc_fallback(blockIdx.x % 2u, given.p_m_tiles) {
    begin(blockIdx.x / 2u, storage(), given.counter);
  }
#endif
  // The worker's number, the same memory for all threads of a CTA, and the counter.
  SCHED_DEVICE void begin(unsigned worker, Shared* shared_, unsigned* counter_) {
    index = worker;
    turn = 0;
    shared = shared_;
    counter = counter_;
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    if (leader()) {
      const unsigned full = (unsigned)__cvta_generic_to_shared(shared->memory) + 16u;
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0 + 0], 1; "
          "fence.mbarrier_init.release.cluster;" :  : "r"(full) : "memory");
    }
#endif
    draw();
    detail::cluster_barrier();
  }
  // Whether there is a current tile. Ask before `tile()`.
  SCHED_FUNCTION bool valid() const {
    return index < k5;
  }
  // All threads of the worker call this together.
  SCHED_DEVICE void next() {
    if (!valid()) return;
    const Index ahead = leader() ? answer() : 0;
    if (leader()) {
      for (unsigned r = 0; r < 2u; ++r) detail::cluster_store(&shared->drawn[turn], ahead, r);
    }
    detail::cluster_barrier();
    index = shared->drawn[turn];
    turn ^= 1u;
    draw();
  }
  SCHED_FUNCTION Tile tile() const { return index_to_tile(index); }
  SCHED_DEVICE bool leader() const {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    return blockIdx.x % 2u == 0 && detail::first_thread();
#else
    return true;
#endif
  }
  // The leader asks for an item, but not again after the answer that there is none.
  SCHED_DEVICE void draw() {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    if (!leader() || !valid()) return;
    const unsigned slots = (unsigned)__cvta_generic_to_shared(shared->memory);
    const unsigned full = (unsigned)__cvta_generic_to_shared(shared->memory) + 16u;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
    const unsigned items = (unsigned)this->items();
    const unsigned clusters = gridDim.x / 2u;
    asm volatile(
        "{ "
        ".reg .pred draws; "
        ".reg .pred wins; "
        ".reg .pred last; "
        ".reg .b32 answer; "
        ".reg .b32 number; "
        ".reg .b32 next; "
        "mov.b32 answer, 4294967295; "
        "setp.gt.u32 draws, %3, %4; "
        "@!draws bra answered; "
        "atom.relaxed.gpu.global.add.u32 number, [%2], 1; "
        "add.u32 next, %4, number; "
        "setp.lt.u32 wins, next, %3; "
        "@wins mov.b32 answer, next; "
        "add.u32 number, number, 1; "
        "setp.eq.u32 last, number, %3; "
        "@last st.relaxed.gpu.global.u32 [%2], 0; "
        "answered: "
        "st.shared::cta.v4.b32 [%0], {answer, answer, answer, answer}; "
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%1]; "
        "}" :  : "r"(slots), "r"(full), "l"(counter), "r"(items), "r"(clusters) : "memory");
#else
    asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], 16;" :  : "r"(full) : "memory");
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" :  : "r"(slots), "r"(full) : "memory");
#endif
#endif
  }
  // What the leader asked for.
  SCHED_DEVICE Index answer() {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    const unsigned slots = (unsigned)__cvta_generic_to_shared(shared->memory);
    const unsigned full = (unsigned)__cvta_generic_to_shared(shared->memory) + 16u;
    const unsigned parity = turn;
    unsigned index;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
    asm volatile(
        "{ "
        ".reg .pred complete; "
        "again: "
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%0], %1; "
        "@!complete bra again; "
        "}" :  : "r"(full), "r"(parity) : "memory");
    asm volatile(
        "{ "
        ".reg .b32 same0; "
        ".reg .b32 same1; "
        ".reg .b32 same2; "
        "ld.shared::cta.v4.b32 {%0, same0, same1, same2}, [%1]; "
        "}" : "=r"(index) : "r"(slots) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
#else
    asm volatile(
        "{ "
        ".reg .pred complete; "
        "again: "
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%0], %1; "
        "@!complete bra again; "
        "}" :  : "r"(full), "r"(parity) : "memory");
    asm volatile(
        "{ "
        ".reg .b128 response; "
        ".reg .pred given; "
        "ld.shared::cta.b128 response, [%1]; "
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 given, response; "
        "mov.b32 %0, 4294967295; "
        "@given clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response; "
        "}" : "=r"(index) : "r"(slots) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
    if (index != 4294967295u) index /= 2u;
#endif
#else
    unsigned index = *shared->answers++;
    if (index != 4294967295u) index /= 2u;
#endif
    return index == 4294967295u ? items() : (Index)index;
  }
  // The number of work items.
  SCHED_FUNCTION Index items() const {
    return k5;
  }
  SCHED_FUNCTION Tile index_to_tile(Index i) const {
    const unsigned t0 = detail::mulhi(i, 44739243u);
    const unsigned t1 = i - (t0 * 96u);
    const bool t2 = t0 == k2;
    const unsigned t3 = t1 >> 2u;
    const unsigned t4 = detail::madhi(t1, k3, k4);
    const unsigned t5 = SCHED_CHOOSE(t2, t4, t3);
    const unsigned t6 = (((t5 * SCHED_CHOOSE(t2, k1, (0u - 4u))) + ((t0 * 4u) + t1)) * 2u) + rank;
    return Tile{(int)t6, (int)t5};
  }
  // Whether a scheduled tile lies in the space; false for padding.
  SCHED_FUNCTION bool in_bounds(Tile tile) const {
    return ((unsigned)tile.m) < p_m_tiles;
  }
  // The work index that visits a scheduled tile.
  SCHED_FUNCTION Index tile_to_index(Tile tile) const {
    const unsigned t0 = (unsigned)tile.m;
    const unsigned t1 = t0 >> 3u;
    const unsigned t2 = ((t1 * 96u) + (((unsigned)tile.n) * SCHED_CHOOSE((t1 == k2), k0, 4u))) + ((t0 >> 1u) & 3u);
    return t2;
  }

  using Self = gemm_clc_fallback;
  // Between the scheduler and the consumers of a cluster; in shared memory.
  struct Ring {
#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
    static constexpr unsigned depth = 2, ctas = 2, none = 4294967295u;
    unsigned own;  // the cluster's own index
    const unsigned* answers;  // the CTA ids that the queue answers, `none` at last
    struct mma {
      const unsigned* at;
      unsigned index;
      SCHED_DEVICE mma(const Ring& ring, unsigned items)
          : at(ring.answers), index(ring.own < items ? ring.own : none) {}
      SCHED_DEVICE bool valid() const { return index != none; }
      SCHED_DEVICE void next() {
        index = *at == none ? none : *at / ctas;
        ++at;
      }
    };
    struct epilogue {
      const unsigned* at;
      unsigned index;
      SCHED_DEVICE epilogue(const Ring& ring, unsigned items, unsigned)
          : at(ring.answers), index(ring.own < items ? ring.own : none) {}
      SCHED_DEVICE bool valid() const { return index != none; }
      SCHED_DEVICE void next() {
        index = *at == none ? none : *at / ctas;
        ++at;
      }
    };
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "gemm_clc_fallback: dispatch clc needs sm_90 or later"
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
    static constexpr unsigned depth = 2, ctas = 2, none = 4294967295u;
    alignas(16) unsigned char memory[64];

    // A place in the ring: a slot, its barriers (addresses in shared memory), and the parity of the round.
    struct Place {
      unsigned ring, slot = 0, parity = 0;
      __device__ __forceinline__ unsigned slots() const { return ring + 0u + slot * 16u; }
      __device__ __forceinline__ unsigned full() const { return ring + 32u + slot * 8u; }
      __device__ __forceinline__ unsigned empty() const { return ring + 48u + slot * 8u; }
      __device__ __forceinline__ void advance() {
        if (++slot == depth) { slot = 0; parity ^= 1u; }
      }
    };
    __device__ __forceinline__ Place place() const { return Place{(unsigned)__cvta_generic_to_shared(memory)}; }

    // All threads of the cluster, before anything else.
    __device__ __forceinline__ void init() const {
      if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const unsigned full = place().full();
        const unsigned empty = place().empty();
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0 + 0], 1; "
            "mbarrier.init.shared::cta.b64 [%0 + 8], 1; "
            "mbarrier.init.shared::cta.b64 [%1 + 0], 4; "
            "mbarrier.init.shared::cta.b64 [%1 + 8], 4; "
            "fence.mbarrier_init.release.cluster;" :  : "r"(full), "r"(empty) : "memory");
      }
      asm volatile(
          "barrier.cluster.arrive.relaxed.aligned; "
          "barrier.cluster.wait.acquire.aligned;" :  :  : "memory");
    }

    // One thread of CTA 0 of the cluster: hands out work until none is left.
    __device__ __forceinline__ void schedule(unsigned* counter, unsigned items) const {
      if (blockIdx.x / ctas >= items) return;
      const unsigned clusters = gridDim.x / ctas;
      Place at = place();
      for (unsigned index = 0; index != none; at.advance()) {
        const unsigned slots = at.slots();
        const unsigned full = at.full();
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            ".reg .b32 before; "
            "xor.b32 before, %1, 1; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], before; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(empty), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 there; "
            "mapa.shared::cluster.u32 there, %0, 0; "
            "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [there], 16; "
            "}" :  : "r"(full) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 there; "
            "mapa.shared::cluster.u32 there, %0, 1; "
            "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [there], 16; "
            "}" :  : "r"(full) : "memory");
        asm volatile(
            "{ "
            ".reg .pred draws; "
            ".reg .pred wins; "
            ".reg .pred last; "
            ".reg .b32 answer; "
            ".reg .b32 number; "
            ".reg .b32 next; "
            ".reg .b32 slot_there; "
            ".reg .b32 full_there; "
            "mov.b32 answer, 4294967295; "
            "setp.gt.u32 draws, %3, %4; "
            "@!draws bra answered; "
            "atom.relaxed.gpu.global.add.u32 number, [%2], 1; "
            "add.u32 next, %4, number; "
            "setp.lt.u32 wins, next, %3; "
            "@wins mov.b32 answer, next; "
            "add.u32 number, number, 1; "
            "setp.eq.u32 last, number, %3; "
            "@last st.relaxed.gpu.global.u32 [%2], 0; "
            "answered: "
            "mapa.shared::cluster.u32 slot_there, %0, 0; "
            "mapa.shared::cluster.u32 full_there, %1, 0; "
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [slot_there], {answer, answer, answer, answer}, [full_there]; "
            "mapa.shared::cluster.u32 slot_there, %0, 1; "
            "mapa.shared::cluster.u32 full_there, %1, 1; "
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [slot_there], {answer, answer, answer, answer}, [full_there]; "
            "}" :  : "r"(slots), "r"(full), "l"(counter), "r"(items), "r"(clusters) : "memory");
        asm volatile(
            "{ "
            ".reg .pred complete; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(full), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 same0; "
            ".reg .b32 same1; "
            ".reg .b32 same2; "
            "ld.shared::cta.v4.b32 {%0, same0, same1, same2}, [%1]; "
            "}" : "=r"(index) : "r"(slots) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
      }
      for (unsigned n = 0; n < depth; ++n, at.advance()) {
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            ".reg .b32 before; "
            "xor.b32 before, %1, 1; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], before; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(empty), "r"(parity) : "memory");
      }
    }

    // What consumer `mma` of each CTA walks with.
    struct mma {
      Place at;
      unsigned index;  // the current work index
      __device__ __forceinline__ mma(const Ring& ring, unsigned items)
          : at(ring.place()), index(blockIdx.x / ctas < items ? blockIdx.x / ctas : none) {}
      __device__ __forceinline__ bool valid() const { return index != none; }
      __device__ __forceinline__ void next() {
        const unsigned slots = at.slots();
        const unsigned full = at.full();
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(full), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 same0; "
            ".reg .b32 same1; "
            ".reg .b32 same2; "
            "ld.shared::cta.v4.b32 {%0, same0, same1, same2}, [%1]; "
            "}" : "=r"(index) : "r"(slots) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
        asm volatile(
            "{ "
            ".reg .b32 there; "
            "fence.release.sync_restrict::shared::cta.cluster; "
            "mapa.shared::cluster.u32 there, %0, 0; "
            "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there]; "
            "}" :  : "r"(empty) : "memory");
        at.advance();
      }
    };

    // What consumer `epilogue` of each CTA walks with.
    struct epilogue {
      Place at;
      unsigned index;  // the current work index
      bool elected;
      __device__ __forceinline__ epilogue(const Ring& ring, unsigned items, unsigned thread)
          : at(ring.place()), index(blockIdx.x / ctas < items ? blockIdx.x / ctas : none), elected(thread == 0) {}
      __device__ __forceinline__ bool valid() const { return index != none; }
      __device__ __forceinline__ void next() {
        const unsigned slots = at.slots();
        const unsigned full = at.full();
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(full), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 same0; "
            ".reg .b32 same1; "
            ".reg .b32 same2; "
            "ld.shared::cta.v4.b32 {%0, same0, same1, same2}, [%1]; "
            "}" : "=r"(index) : "r"(slots) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
        asm volatile("bar.sync 1, 128;" :  :  : "memory");
        if (elected) asm volatile(
            "{ "
            ".reg .b32 there; "
            "fence.release.sync_restrict::shared::cta.cluster; "
            "mapa.shared::cluster.u32 there, %0, 0; "
            "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there]; "
            "}" :  : "r"(empty) : "memory");
        at.advance();
      }
    };
#else
    static constexpr unsigned depth = 2, ctas = 2, none = 4294967295u;
    alignas(16) unsigned char memory[64];

    // A place in the ring: a slot, its barriers (addresses in shared memory), and the parity of the round.
    struct Place {
      unsigned ring, slot = 0, parity = 0;
      __device__ __forceinline__ unsigned slots() const { return ring + 0u + slot * 16u; }
      __device__ __forceinline__ unsigned full() const { return ring + 32u + slot * 8u; }
      __device__ __forceinline__ unsigned empty() const { return ring + 48u + slot * 8u; }
      __device__ __forceinline__ void advance() {
        if (++slot == depth) { slot = 0; parity ^= 1u; }
      }
    };
    __device__ __forceinline__ Place place() const { return Place{(unsigned)__cvta_generic_to_shared(memory)}; }

    // All threads of the cluster, before anything else.
    __device__ __forceinline__ void init() const {
      if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const unsigned full = place().full();
        const unsigned empty = place().empty();
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0 + 0], 1; "
            "mbarrier.init.shared::cta.b64 [%0 + 8], 1; "
            "mbarrier.init.shared::cta.b64 [%1 + 0], 4; "
            "mbarrier.init.shared::cta.b64 [%1 + 8], 4; "
            "fence.mbarrier_init.release.cluster;" :  : "r"(full), "r"(empty) : "memory");
      }
      asm volatile(
          "barrier.cluster.arrive.relaxed.aligned; "
          "barrier.cluster.wait.acquire.aligned;" :  :  : "memory");
    }

    // One thread of CTA 0 of the cluster: hands out work until none is left.
    __device__ __forceinline__ void schedule(unsigned*, unsigned) const {
      Place at = place();
      for (unsigned index = 0; index != none; at.advance()) {
        const unsigned slots = at.slots();
        const unsigned full = at.full();
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            ".reg .b32 before; "
            "xor.b32 before, %1, 1; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], before; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(empty), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 there; "
            "mapa.shared::cluster.u32 there, %0, 0; "
            "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [there], 16; "
            "}" :  : "r"(full) : "memory");
        asm volatile(
            "{ "
            ".reg .b32 there; "
            "mapa.shared::cluster.u32 there, %0, 1; "
            "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [there], 16; "
            "}" :  : "r"(full) : "memory");
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" :  : "r"(slots), "r"(full) : "memory");
        asm volatile(
            "{ "
            ".reg .pred complete; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(full), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b128 response; "
            ".reg .pred given; "
            "ld.shared::cta.b128 response, [%1]; "
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 given, response; "
            "mov.b32 %0, 4294967295; "
            "@given clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response; "
            "@given shr.u32 %0, %0, 1; "
            "}" : "=r"(index) : "r"(slots) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
      }
      for (unsigned n = 0; n < depth; ++n, at.advance()) {
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            ".reg .b32 before; "
            "xor.b32 before, %1, 1; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], before; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(empty), "r"(parity) : "memory");
      }
    }

    // What consumer `mma` of each CTA walks with.
    struct mma {
      Place at;
      unsigned index;  // the current work index
      __device__ __forceinline__ mma(const Ring& ring, unsigned)
          : at(ring.place()), index(blockIdx.x / ctas) {}
      __device__ __forceinline__ bool valid() const { return index != none; }
      __device__ __forceinline__ void next() {
        const unsigned slots = at.slots();
        const unsigned full = at.full();
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(full), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b128 response; "
            ".reg .pred given; "
            "ld.shared::cta.b128 response, [%1]; "
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 given, response; "
            "mov.b32 %0, 4294967295; "
            "@given clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response; "
            "@given shr.u32 %0, %0, 1; "
            "}" : "=r"(index) : "r"(slots) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
        asm volatile(
            "{ "
            ".reg .b32 there; "
            "fence.release.sync_restrict::shared::cta.cluster; "
            "mapa.shared::cluster.u32 there, %0, 0; "
            "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there]; "
            "}" :  : "r"(empty) : "memory");
        at.advance();
      }
    };

    // What consumer `epilogue` of each CTA walks with.
    struct epilogue {
      Place at;
      unsigned index;  // the current work index
      bool elected;
      __device__ __forceinline__ epilogue(const Ring& ring, unsigned, unsigned thread)
          : at(ring.place()), index(blockIdx.x / ctas), elected(thread == 0) {}
      __device__ __forceinline__ bool valid() const { return index != none; }
      __device__ __forceinline__ void next() {
        const unsigned slots = at.slots();
        const unsigned full = at.full();
        const unsigned empty = at.empty();
        const unsigned parity = at.parity;
        asm volatile(
            "{ "
            ".reg .pred complete; "
            "again: "
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 complete, [%0], %1; "
            "@!complete bra again; "
            "fence.acquire.sync_restrict::shared::cluster.cluster; "
            "}" :  : "r"(full), "r"(parity) : "memory");
        asm volatile(
            "{ "
            ".reg .b128 response; "
            ".reg .pred given; "
            "ld.shared::cta.b128 response, [%1]; "
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 given, response; "
            "mov.b32 %0, 4294967295; "
            "@given clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, response; "
            "@given shr.u32 %0, %0, 1; "
            "}" : "=r"(index) : "r"(slots) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" :  :  : "memory");
        asm volatile("bar.sync 1, 128;" :  :  : "memory");
        if (elected) asm volatile(
            "{ "
            ".reg .b32 there; "
            "fence.release.sync_restrict::shared::cta.cluster; "
            "mapa.shared::cluster.u32 there, %0, 0; "
            "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there]; "
            "}" :  : "r"(empty) : "memory");
        at.advance();
      }
    };
#endif
  };
  // What consumer `mma`, one thread of each CTA, walks with: `valid()`, `tile()`, `next()`.
  struct mma : Ring::mma {
    const Self& tiles;
    SCHED_DEVICE mma(const Self& tiles_, const Ring& ring_)
        : Ring::mma(ring_, tiles_.items()), tiles(tiles_) {}
    SCHED_DEVICE Tile tile() const { return tiles.index_to_tile(this->index); }
  };
  // What consumer `epilogue`, 128 threads of each CTA, walks with: `valid()`, `tile()`, `next()`.
  struct epilogue : Ring::epilogue {
    const Self& tiles;
    SCHED_DEVICE epilogue(const Self& tiles_, const Ring& ring_, unsigned thread_)
        : Ring::epilogue(ring_, tiles_.items(), thread_), tiles(tiles_) {}
    SCHED_DEVICE Tile tile() const { return tiles.index_to_tile(this->index); }
  };
};
}  // namespace sched
