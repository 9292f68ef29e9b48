// The peer of `compile_speed.py`: a persistent group-major tile schedule as one writes it by hand, in a kernel that records
// each worker's tiles. The rows are known at launch; 32 columns, bands of 8 rows.
struct GroupMajor {
  static constexpr unsigned columns = 32, group = 8;
  unsigned rows, index, stride;

  __device__ GroupMajor(unsigned worker, unsigned workers, unsigned rows) : rows(rows), index(worker), stride(workers) {}

  __device__ bool next(int& m, int& n) {
    if (index >= rows * columns) return false;
    const unsigned band = index / (group * columns), first = band * group;
    const unsigned height = min(rows - first, group), inside = index % (group * columns);
    m = first + inside % height;
    n = inside / height;
    index += stride;
    return true;
  }
};

extern "C" __global__ void __launch_bounds__(32)
handwritten_trace(int* tiles, unsigned long long* counts, unsigned long long capacity, unsigned rows) {
  if (threadIdx.x != 0) return;
  GroupMajor schedule(blockIdx.x, gridDim.x, rows);
  unsigned long long count = 0;
  for (int m, n; schedule.next(m, n); ++count) {
    if (count < capacity) {
      int* out = tiles + (blockIdx.x * capacity + count) * 3;
      out[0] = m;
      out[1] = n;
      out[2] = 1;
    }
  }
  counts[blockIdx.x] = count;
}
