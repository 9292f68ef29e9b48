// C = A * B, row-major, in single precision: a plain kernel whose tiles come from a generated schedule.
// Launch it with blocks of 32 x 32 threads and any number of blocks along x.
#include "schedule.cuh"

constexpr unsigned TILE = 32;

extern "C" __global__ void gemm(const float* A, const float* B, float* C, unsigned M, unsigned N, unsigned K) {
  __shared__ float a[TILE][TILE], b[TILE][TILE];
  const unsigned x = threadIdx.x, y = threadIdx.y;
  for (sched::gemm_tiles s(blockIdx.x, gridDim.x, M, N); s.valid(); s.next()) {
    const auto tile = s.tile();
    const unsigned row = tile.m * TILE + y, column = tile.n * TILE + x;
    float sum = 0;
    for (unsigned k = 0; k < K; k += TILE) {
      a[y][x] = row < M && k + x < K ? A[(size_t)row * K + k + x] : 0;
      b[y][x] = k + y < K && column < N ? B[(size_t)(k + y) * N + column] : 0;
      __syncthreads();
      for (unsigned i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
      __syncthreads();
    }
    if (row < M && column < N) C[(size_t)row * N + column] = sum;
  }
}
