#include "stripes_declarations.cuh"

extern "C" __global__ void clear(float* y, unsigned count, sched::stripes::Arguments tiles) {
  for (sched::stripes s(tiles); s.valid(); s.next())
    for (unsigned e = threadIdx.x; e < 1024; e += blockDim.x) {
      const size_t i = (size_t)s.tile().tile * 1024 + e;
      if (i < count) y[i] = 0;
    }
}
