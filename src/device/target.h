// SPDX-License-Identifier: BSD-3-Clause
// target.h — what differs between the compilers that see device code; apart from ptx/ the only
// place for #ifdef on them. FA3_GPU is 1 when NVRTC or nvcc compiles for a GPU; else the host
// compiles the same source against the simulator (src/sim).
#pragma once

#if defined(__CUDACC__)
#define FA3_GPU 1
#else
#define FA3_GPU 0
#endif

#if FA3_GPU
// A pure function that host, simulator and GPU share.
#define FA3_HD __host__ __device__ inline
// A function of device code.
#define FA3_DEV __device__ __forceinline__
// A kernel: FA3_KERNEL(threads[, CTAs per SM]) void name(FA3_GRID_CONSTANT const Args args). One
// struct is the only argument. A kernel with setmaxnreg gives both numbers: from the first alone
// ptxas does not always know the registers at entry, and then ignores it.
#define FA3_KERNEL(...) __global__ __launch_bounds__(__VA_ARGS__)
#define FA3_GRID_CONSTANT __grid_constant__
#define FA3_UNROLL _Pragma("unroll")
#define FA3_NO_UNROLL _Pragma("unroll 1")
#else
#define FA3_HD inline
#define FA3_DEV inline
#define FA3_KERNEL(...) inline
#define FA3_GRID_CONSTANT
#define FA3_UNROLL
#define FA3_NO_UNROLL
#endif

// Names the members of a shared-memory struct, in the struct: FA3_NAMED(q, k, k_full). Reports of
// the simulator then speak of `k_full[1]`; memory outside the named members may not be touched.
// Nothing on a GPU.
#if FA3_GPU
#define FA3_NAMED(...)
#else
#define FA3_NAMED(...)                    \
  template <class Visitor>                \
  void visit_members(Visitor&& visitor) { \
    visitor(#__VA_ARGS__, __VA_ARGS__);   \
  }
#endif

namespace fa3 {

// The line of device code that called a primitive; the simulator's reports quote it. Every
// primitive ends in a parameter `Where where = Where::here()`; wrappers pass theirs on. Empty on a
// GPU.
struct Where {
#if FA3_GPU
  __device__ static constexpr Where here() { return {}; }
#else
  const char* file;
  int line;
  // (std::source_location is missing in clang 14.)
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
#endif
};

}  // namespace fa3
