// The instructions of examples/tensor_cores/tile.cuh on the host, for cuda_on_host.hpp: shared memory is an array that begins
// at address 0. Copies are made as late as they may be, or, with -DEARLY, at once: neither may be noticed.
#pragma once
#include <cstring>

namespace tensor_cores {
inline unsigned char memory[4 * 49152];
struct Copy { unsigned to; const unsigned short* from; bool inside; };
inline std::vector<Copy> begun[512];
inline std::vector<std::vector<Copy>> committed[512];

inline void* at(unsigned address, unsigned size) {
  if (address % 16 != 0 || address + size > sizeof memory) exit(5);
  return memory + address;
}

inline void make(const Copy& c) {
  if (c.inside && (size_t)c.from % 16 != 0) exit(6);
  if (c.inside) memcpy(at(c.to, 16), c.from, 16); else memset(at(c.to, 16), 0, 16);
}

// What the threads of a warp give one another; two sets in turn, since some run ahead.
inline unsigned given[2][512][6], turn[512];
inline unsigned (*exchange(const unsigned* values, int count))[6] {
  const unsigned t = threadIdx.x, set = turn[t]++ % 2;
  memcpy(given[set][t], values, count * 4);
  __syncthreads();
  return given[set] + t / 32 * 32;
}

inline float half_of(unsigned both, int which) {
  const unsigned bits = which ? both & 0xffff0000u : both << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline unsigned rounded(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
}  // namespace tensor_cores

inline unsigned __cvta_generic_to_shared(const void*) { return 0; }

inline void copy_async(bool wanted, unsigned to, const unsigned short* from, bool inside) {
  if (!wanted) return;
  [[maybe_unused]] volatile unsigned short read = *from;  // no address may be outside the matrix
  const tensor_cores::Copy copy{to, from, inside};
#ifdef EARLY
  tensor_cores::make(copy);
#else
  tensor_cores::begun[threadIdx.x].push_back(copy);
#endif
}

inline void commit() {
  auto& begun = tensor_cores::begun[threadIdx.x];
  tensor_cores::committed[threadIdx.x].push_back(std::move(begun));
  begun.clear();
}

template <int N>
void wait() {
  auto& groups = tensor_cores::committed[threadIdx.x];
  for (; groups.size() > N; groups.erase(groups.begin()))
    for (const auto& copy : groups.front()) tensor_cores::make(copy);
}

inline void store_shared(unsigned to, const unsigned (&v)[4]) { memcpy(tensor_cores::at(to, 16), v, 16); }

inline void load_matrices(unsigned (&r)[4], unsigned at) {
  const auto warp = tensor_cores::exchange(&at, 1);
  const unsigned lane = threadIdx.x % 32;
  for (int m = 0; m < 4; ++m) memcpy(&r[m], (char*)tensor_cores::at(warp[m * 8 + lane / 4][0], 16) + lane % 4 * 4, 4);
}

inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned own[] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto warp = tensor_cores::exchange(own, 6);
  const unsigned lane = threadIdx.x % 32;
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4, column = lane % 4 * 2 + e % 2;
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2, part = k / 8;
      c[e] += tensor_cores::half_of(warp[row * 4 + pair][e / 2 + part * 2], k % 2) *
              tensor_cores::half_of(warp[column * 4 + pair][4 + part], k % 2);
    }
  }
}

inline unsigned pack(float low, float high) { return tensor_cores::rounded(low) | tensor_cores::rounded(high) << 16; }
