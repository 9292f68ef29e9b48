// The same GEMM whose tiles the hardware deals out (cluster launch control, sm_100a and later), or a counter on sm_90a.
//
// One thread of the first four warps asks for work, a tile ahead; the 256 threads of the consumer `math` compute. Blocks of
// 384 threads, so that the four can give the registers that they do not need to the others.
#include <sched/gemm.cuh>

#include "tile.cuh"

constexpr int SCHEDULER = 128;

template <int STAGES>
__global__ void __launch_bounds__(SCHEDULER + THREADS, 1)
gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, sched::gemm::Arguments tiles) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ sched::gemm::Ring ring;
  const sched::gemm s(tiles);
  ring.init();
  if (threadIdx.x < SCHEDULER) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) ring.schedule(tiles.counter, s.items());
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  for (sched::gemm::math w(s, ring, threadIdx.x - SCHEDULER); w.valid(); w.next()) {
    const auto [m, n] = w.tile();
    compute_tile<STAGES, SCHEDULER>(m, n, A, B, C, M, N, K, shared);
  }
}
