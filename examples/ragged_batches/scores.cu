// Scores of one query for each batch and head against that batch's keys: scores[row, head] = keys[row, head] . queries[batch, head].
//
// The batches' rows stand one after another: batch b has rows begins[b] to below begins[b + 1], any number of them, also
// none. A block of 256 threads takes 64 rows of one head at a time, those that the schedule's tables list for it.
#include <sched/ragged.cuh>

constexpr int ROWS = 64, PARTS = 4;  // of a tile; threads for each row

extern "C" __global__ void __launch_bounds__(ROWS * PARTS)
scores(const float* keys, const float* queries, float* scores, const int* begins, int heads, int dim,
       sched::ragged::Arguments tiles) {
  __shared__ float sums[ROWS][PARTS];
  const int r = threadIdx.x / PARTS, part = threadIdx.x % PARTS;
  for (sched::ragged s(tiles); s.valid(); s.next()) {
    const auto [b, h, q] = s.tile();
    const int row = begins[b] + q * ROWS + r;
    const bool inside = row < begins[b + 1];
    const float* key = keys + ((size_t)row * heads + h) * dim;
    const float* query = queries + ((size_t)b * heads + h) * dim;
    float sum = 0;
    for (int d = part; d < dim && inside; d += PARTS) sum += key[d] * query[d];
    sums[r][part] = sum;
    __syncthreads();
    if (part == 0 && inside) scores[(size_t)row * heads + h] = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
    __syncthreads();  // the next tile's sums go where these were read
  }
}
