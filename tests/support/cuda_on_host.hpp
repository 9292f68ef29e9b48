// CUDA C++ on the host, for tests: a block's threads are fibers that take turns at barriers, blocks run one by one.
//
// Include it before the kernel, which then is a function; `main` reads a launch from standard input and writes the
// buffers after it (tests/support/kernels.py).
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#define __CUDACC__
#define __CUDA_ARCH__ 800
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 { unsigned x = 1, y = 1, z = 1; };
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}

namespace fibers {
struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(1 << 18);
  bool done = false;
};
inline ucontext_t scheduler;
inline std::vector<std::unique_ptr<Fiber>> all;
inline Fiber* current;
inline std::function<void()> kernel;

inline void body() {
  kernel();
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

// One block: every thread runs to its next barrier, in turn.
inline void run(unsigned threads) {
  all.clear();
  for (unsigned t = 0; t < threads; ++t) {
    all.push_back(std::make_unique<Fiber>());
    Fiber& f = *all.back();
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    makecontext(&f.context, body, 0);
  }
  for (unsigned ended = 0; ended < threads;) {
    for (unsigned t = 0; t < threads; ++t) {
      current = all[t].get();
      threadIdx = {t, 0, 0};
      swapcontext(&scheduler, &current->context);
      ended += current->done;
    }
    if (ended % threads != 0) {
      fprintf(stderr, "%u threads have ended, the others of %u wait at a barrier\n", ended, threads);
      exit(3);
    }
  }
}
}  // namespace fibers

inline void __syncthreads() { swapcontext(&fibers::current->context, &fibers::scheduler); }

namespace host {
template <typename T>
T read() {
  T value;
  if (fread(&value, sizeof value, 1, stdin) != 1) exit(2);
  return value;
}

struct Argument {
  bool buffer;
  std::unique_ptr<char[]> bytes;  // of its own length, so that a sanitizer notices what reads past it
  uint64_t size;
  void* pointer;
};

template <typename... T, size_t... I>
void call(void (*entry)(T...), std::vector<Argument>& given, std::index_sequence<I...>) {
  entry(*(std::remove_cv_t<T>*)(given[I].buffer ? (void*)&given[I].pointer : given[I].bytes.get())...);
}

// Grid, threads; each argument: whether it is a buffer, its size, its bytes, and where in them stand buffers' addresses.
// The kernel's parameters are the first of them.
template <typename... T>
int main(void (*entry)(T...)) {
  gridDim = {read<uint32_t>(), 1, 1};
  gridDim.y = read<uint32_t>();
  blockDim = {read<uint32_t>(), 1, 1};
  std::vector<Argument> given(read<uint32_t>());
  std::vector<std::pair<void**, uint32_t>> addresses;
  for (auto& a : given) {
    a.buffer = read<uint32_t>();
    a.size = read<uint64_t>();
    a.bytes.reset(new char[a.size]);
    a.pointer = a.bytes.get();
    if (fread(a.bytes.get(), 1, a.size, stdin) != a.size) return 2;
    for (uint32_t n = read<uint32_t>(); n > 0; --n) {
      const uint32_t offset = read<uint32_t>();
      addresses.emplace_back((void**)(a.bytes.get() + offset), read<uint32_t>());
    }
  }
  for (auto [place, which] : addresses) *place = given.at(which).pointer;
  fibers::kernel = [&] { call(entry, given, std::make_index_sequence<sizeof...(T)>()); };
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) fibers::run(blockDim.x);
  for (auto& a : given)
    if (a.buffer) fwrite(a.bytes.get(), 1, a.size, stdout);
  return 0;
}
}  // namespace host
