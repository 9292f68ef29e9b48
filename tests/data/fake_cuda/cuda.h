// As much of CUDA's driver API as launchers use, for tests without CUDA: a device as the test describes it, and functions
// that keep what they are told.
#pragma once
#include <cstring>
#include <vector>

typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_UNKNOWN = 999 } CUresult;
typedef enum CUdevice_attribute_enum {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120
} CUdevice_attribute;
typedef enum CUfunction_attribute_enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 } CUfunction_attribute;
typedef enum CUlaunchAttributeID_enum {
  CU_LAUNCH_ATTRIBUTE_IGNORE = 0,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4
} CUlaunchAttributeID;
typedef union CUlaunchAttributeValue_union {
  char pad[64];
  struct {
    unsigned int x, y, z;
  } clusterDim;
} CUlaunchAttributeValue;
typedef struct CUlaunchAttribute_st {
  CUlaunchAttributeID id;
  char pad[8 - sizeof(CUlaunchAttributeID)];
  CUlaunchAttributeValue value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig_st {
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned int numAttrs;
} CUlaunchConfig;
typedef struct alignas(64) CUtensorMap_st {
  unsigned long long opaque[16];
} CUtensorMap;

namespace fake {
inline int attributes[128];
inline int resident = 2;
inline int allowed = 48 * 1024;  // dynamic shared memory
inline CUresult next = CUDA_SUCCESS;
inline std::vector<unsigned> offsets, sizes;  // of the kernel's parameters
inline bool launched;
inline CUlaunchConfig config;
inline unsigned cluster[3];
inline std::vector<unsigned char> bytes;
}  // namespace fake

inline CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}
inline CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
inline CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = fake::attributes[attribute];
  return CUDA_SUCCESS;
}
inline CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int value) {
  fake::allowed = value;
  return CUDA_SUCCESS;
}
inline CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction, int, size_t shared) {
  *count = shared <= (size_t)fake::allowed ? fake::resident : 0;
  return CUDA_SUCCESS;
}
inline CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
  if (fake::next != CUDA_SUCCESS || config->sharedMemBytes > (unsigned)fake::allowed) return CUDA_ERROR_UNKNOWN;
  fake::launched = true;
  fake::config = *config;
  for (unsigned& c : fake::cluster) c = 0;
  if (config->numAttrs == 1 && config->attrs->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    std::memcpy(fake::cluster, &config->attrs->value.clusterDim, sizeof fake::cluster);
  fake::bytes.assign(fake::offsets.empty() ? 0 : fake::offsets.back() + fake::sizes.back(), 0);
  for (size_t k = 0; k < fake::offsets.size(); ++k)
    std::memcpy(fake::bytes.data() + fake::offsets[k], parameters[k], fake::sizes[k]);
  return CUDA_SUCCESS;
}
