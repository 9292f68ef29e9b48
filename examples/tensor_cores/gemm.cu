// C = A * B^T in bf16 on tensor cores: A is M x K, B is N x K, C is M x N, row-major, any sizes.
//
// Which tiles a block computes, and in which order, is the schedule's: this source is the same for every order and every
// dispatch. Blocks of 256 threads with STAGES * 48 KiB of dynamic shared memory.
#include <sched/gemm.cuh>

#include "tile.cuh"

template <int STAGES>
__global__ void __launch_bounds__(THREADS)
gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, sched::gemm::Arguments tiles) {
  extern __shared__ __align__(128) unsigned char shared[];
  for (sched::gemm s(tiles); s.valid(); s.next()) {
    const auto [m, n] = s.tile();
    compute_tile<STAGES>(m, n, A, B, C, M, N, K, shared);
  }
}
