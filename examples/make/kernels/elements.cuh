#pragma once
#include <tiles/extent.cuh>

// Calls f(i) for each element i of tile (m, n) of a row-major matrix of M x N, by all threads of the block.
template <class F>
__device__ void for_each_element(unsigned m, unsigned n, unsigned M, unsigned N, F f) {
  for (unsigned e = threadIdx.x; e < TILE * TILE; e += blockDim.x) {
    const unsigned row = m * TILE + e / TILE, column = n * TILE + e % TILE;
    if (row < M && column < N) f((size_t)row * N + column);
  }
}
