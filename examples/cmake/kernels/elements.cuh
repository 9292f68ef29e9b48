#pragma once
#include <tiles/extent.cuh>

// Calls f(i) for each element i of a tile, by all threads of the block.
template <class F>
__device__ void for_each_element(unsigned tile, size_t count, F f) {
  for (unsigned e = threadIdx.x; e < TILE; e += blockDim.x) {
    const size_t i = (size_t)tile * TILE + e;
    if (i < count) f(i);
  }
}
