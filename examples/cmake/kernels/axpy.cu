#include <sched/axpy.cuh>
#include "elements.cuh"

extern "C" __global__ void axpy(const float* x, float* y, float a, unsigned count, sched::axpy::Arguments tiles) {
  for (sched::axpy s(tiles); s.valid(); s.next())
    for_each_element(s.tile().tile, count, [=](size_t i) { y[i] += a * x[i]; });
}
