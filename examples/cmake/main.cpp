// Launches the kernel of axpy.yaml and checks what it computes: `run_axpy axpy.sm_90a.cubin`.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "axpy_launcher.h"

namespace axpy = sched_launch::axpy;

// Ends the program where a call of the driver failed.
static void require(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  std::fprintf(stderr, "%s: %s\n", call, text ? text : "unknown error");
  std::exit(1);
}
#define REQUIRE(call) require(call, #call)

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s CUBIN\n", argv[0]), 2;
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction function;
  REQUIRE(cuInit(0));
  REQUIRE(cuDeviceGet(&device, 0));
  REQUIRE(cuDevicePrimaryCtxRetain(&context, device));
  REQUIRE(cuCtxSetCurrent(context));
  REQUIRE(cuModuleLoad(&module, argv[1]));
  REQUIRE(cuModuleGetFunction(&function, module, axpy::entry));

  const unsigned count = 1000003;
  std::vector<float> x(count), y(count);
  for (unsigned i = 0; i < count; ++i) x[i] = float(i % 7), y[i] = float(i % 5);
  const size_t bytes = count * sizeof(float);
  axpy::Arguments arguments;
  REQUIRE(cuMemAlloc(&arguments.x, bytes));
  REQUIRE(cuMemAlloc(&arguments.y, bytes));
  REQUIRE(cuMemcpyHtoD(arguments.x, x.data(), bytes));
  REQUIRE(cuMemcpyHtoD(arguments.y, y.data(), bytes));
  arguments.a = 3;
  arguments.count = count;

  const auto status = axpy::launch(function, arguments, nullptr);
  if (!status) return std::fprintf(stderr, "%s\n", status.message.c_str()), 1;
  REQUIRE(cuMemcpyDtoH(y.data(), arguments.y, bytes));
  for (unsigned i = 0; i < count; ++i)
    if (y[i] != float(i % 5) + 3 * x[i]) return std::fprintf(stderr, "y[%u] is %g\n", i, y[i]), 1;
  std::printf("%u elements are right\n", count);
}
