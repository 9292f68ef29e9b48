#include <sched/by_column.cuh>
#include <sched/reduce.cuh>

__device__ void add(float* sums, unsigned at, const float* first, unsigned count, unsigned stride) {
  float sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += 32) sum += first[(size_t)i * stride];
  for (unsigned half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
  if (threadIdx.x == 0) sums[at] = sum;
}

extern "C" __global__ void reduce(const float* A, float* row_sums, float* column_sums, unsigned M, unsigned N,
                                  sched::reduce::Arguments rows, sched::by_column::Arguments columns) {
  for (sched::reduce s(rows); s.valid(); s.next()) add(row_sums, s.tile().row, A + (size_t)s.tile().row * N, N, 1);
  for (sched::by_column s(columns); s.valid(); s.next()) add(column_sums, s.tile().column, A + s.tile().column, M, N);
}
