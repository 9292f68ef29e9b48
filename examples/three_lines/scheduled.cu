// C = A * B in single precision, row-major, any sizes: A is M x K, B is K x N, C is M x N.
// A block of 256 threads computes tiles of 128 x 128, a thread 8 x 8 of their elements.
#include <sched/gemm.cuh>

constexpr int TILE = 128, STEP = 8;   // of C, along both axes; of K, what is in shared memory at a time
constexpr int THREADS = 256, PER = 8;  // elements of C, along both axes, that a thread computes

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* A, const float* B, float* C, int M, int N, int K, sched::gemm::Arguments tiles) {
  __shared__ float a[STEP][TILE + 4], b[STEP][TILE];  // a is transposed, and padded against bank conflicts
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (sched::gemm s(tiles); s.valid(); s.next()) { const auto [m, n] = s.tile();
    const int row = m * TILE, column = n * TILE;
    float sum[PER][PER] = {};
    for (int k = 0; k < K; k += STEP) {
      for (int i = threadIdx.x; i < TILE * STEP; i += THREADS) {
        const int r = i / STEP, s = i % STEP;
        a[s][r] = row + r < M && k + s < K ? A[(size_t)(row + r) * K + k + s] : 0;
      }
      for (int i = threadIdx.x; i < TILE * STEP; i += THREADS) {
        const int s = i / TILE, c = i % TILE;
        b[s][c] = k + s < K && column + c < N ? B[(size_t)(k + s) * N + column + c] : 0;
      }
      __syncthreads();
      for (int s = 0; s < STEP; ++s) {
        float left[PER], right[PER];
        for (int i = 0; i < PER; ++i) left[i] = a[s][y + 16 * i];
        for (int j = 0; j < PER; ++j) right[j] = b[s][x + 16 * j];
        for (int i = 0; i < PER; ++i)
          for (int j = 0; j < PER; ++j) sum[i][j] += left[i] * right[j];
      }
      __syncthreads();
    }
    for (int i = 0; i < PER; ++i) {
      for (int j = 0; j < PER; ++j) {
        const int r = row + y + 16 * i, c = column + x + 16 * j;
        if (r < M && c < N) C[(size_t)r * N + c] = sum[i][j];
      }
    }
  }
}
