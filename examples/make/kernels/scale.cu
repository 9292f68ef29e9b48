#include <sched/scale.cuh>
#include "elements.cuh"

extern "C" __global__ void scale(float* A, unsigned M, unsigned N, float factor, sched::scale::Arguments tiles) {
  for (sched::scale s(tiles); s.valid(); s.next()) {
    const auto tile = s.tile();
    for_each_element(tile.m, tile.n, M, N, [=](size_t i) { A[i] *= factor; });
  }
}
