"""What launchers of all kernels share, in C++17: faults in words, the device's limits, the driver's calls."""

from __future__ import annotations

PRELUDE = """\
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string>

#ifndef SCHED_LAUNCH
#define SCHED_LAUNCH
namespace sched_launch {

// What became of a launch: true where it was given to the driver, or there was nothing to do.
struct Status {
  CUresult result;
  std::string message;
  explicit operator bool() const { return result == CUDA_SUCCESS; }
};

struct Grid {
  unsigned long long x, y, z;
};

namespace detail {

// Upper half of the full product.
inline unsigned mulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
inline unsigned long long mulhi(unsigned long long a, unsigned long long b) {
  const unsigned long long low = 0xffffffffull, a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
  const unsigned long long middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & low)) >> 32);
}

inline void add(std::string& found, const std::string& fault) {
  if (!found.empty() && !fault.empty()) found += "; ";
  found += fault;
}

inline void fault(std::string& found, const char* what, const std::string& is, const std::string& expected) {
  add(found, std::string(what) + ": found " + is + ", expected " + expected);
}

inline std::string text(const Grid& g) {
  return "[" + std::to_string(g.x) + ", " + std::to_string(g.y) + ", " + std::to_string(g.z) + "]";
}

inline unsigned ask(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value > 0 ? (unsigned)value : 0u;
}

inline bool within(const Grid& g, const Grid& most) { return g.x <= most.x && g.y <= most.y && g.z <= most.z; }

inline void check_device(std::string& found, CUdevice device, unsigned major, unsigned minor, bool exact,
                         const char* expected) {
  const unsigned has = ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const unsigned own = ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (has != major || (exact ? own != minor : own < minor))
    fault(found, "device", "compute capability " + std::to_string(has) + "." + std::to_string(own), expected);
}

inline void check_block(std::string& found, CUdevice device, const Grid& block) {
  const Grid most = {ask(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), ask(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                     ask(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  const unsigned threads = ask(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (!within(block, most) || block.x * block.y * block.z > threads)
    fault(found, "block", text(block),
          "at most " + std::to_string(threads) + " threads, " + text(most) + " along x, y, z");
}

inline void check_clusters(std::string& found, CUdevice device, unsigned ctas) {
  if (ask(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0)
    fault(found, "device", "no clusters", "a device with clusters of " + std::to_string(ctas) + " CTAs");
}

inline void check_shared(std::string& found, CUdevice device, unsigned long long bytes, unsigned beside) {
  const unsigned limit = ask(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  const unsigned most = limit > beside ? limit - beside : 0;
  if (bytes > most)
    fault(found, "shared memory", std::to_string(bytes) + " bytes of dynamic shared memory",
          "at most " + std::to_string(most) + ", beside " + std::to_string(beside) + " static ones");
}

inline void check_grid(std::string& found, CUdevice device, const Grid& g, const Grid& cluster) {
  const Grid most = {ask(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), ask(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                     ask(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  if (!within(g, most)) fault(found, "grid", text(g), "at most " + text(most));
  if (g.x % cluster.x != 0 || g.y % cluster.y != 0 || g.z % cluster.z != 0)
    fault(found, "grid", text(g), "multiples of the cluster " + text(cluster));
}

template <typename T>
void put(unsigned char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

inline Status failed(const char* call, CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return {result, std::string(call) + ": " + (name != nullptr ? name : "an unknown error")};
}

// One launch, and what it tells the driver.
struct Launching {
  const char* kernel;
  CUfunction function;
  CUstream stream;
  Grid block, cluster;
  unsigned shared;
  bool clusters = false;  // whether the hardware is told of them

  Status refused(const std::string& wrong) const {
    return {CUDA_ERROR_INVALID_VALUE, std::string(kernel) + ": " + wrong};
  }

  Status allow_shared() const {
    if (shared <= 48 * 1024) return {CUDA_SUCCESS, ""};
    const CUresult r = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
    return r == CUDA_SUCCESS ? Status{r, ""} : failed("cuFuncSetAttribute", r);
  }

  Status resident(CUdevice device, int threads, unsigned ctas, unsigned long long& workers) const {
    int each = 0;
    const CUresult r = cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, threads, shared);
    if (r != CUDA_SUCCESS) return failed("cuOccupancyMaxActiveBlocksPerMultiprocessor", r);
    workers = (unsigned long long)(each > 0 ? each : 0) * ask(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) / ctas;
    if (workers != 0) return {r, ""};
    return refused("device: found no room for one worker, expected room for registers and shared memory");
  }

  Status launch(const Grid& grid, void** parameters) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {CUDA_SUCCESS, ""};  // nothing to do
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = (unsigned)cluster.x;
    attribute.value.clusterDim.y = (unsigned)cluster.y;
    attribute.value.clusterDim.z = (unsigned)cluster.z;
    CUlaunchConfig config = {};
    config.gridDimX = (unsigned)grid.x;
    config.gridDimY = (unsigned)grid.y;
    config.gridDimZ = (unsigned)grid.z;
    config.blockDimX = (unsigned)block.x;
    config.blockDimY = (unsigned)block.y;
    config.blockDimZ = (unsigned)block.z;
    config.sharedMemBytes = shared;
    config.hStream = stream;
    config.attrs = clusters ? &attribute : nullptr;
    config.numAttrs = clusters ? 1 : 0;
    const CUresult r = cuLaunchKernelEx(&config, function, parameters, nullptr);
    return r == CUDA_SUCCESS ? Status{r, ""} : failed("cuLaunchKernelEx", r);
  }
};

}  // namespace detail
}  // namespace sched_launch
#endif
"""
