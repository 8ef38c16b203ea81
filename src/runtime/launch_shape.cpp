// SPDX-License-Identifier: BSD-3-Clause
// launch_shape.cpp — CUDA's limits for compute capability 9.0 (CUDA C++ Programming Guide, "Compute
// Capabilities").
#include "runtime/launch_shape.h"

namespace fa3 {
namespace {

constexpr u32 kMaxGrid[3] = {0x7fffffff, 65535, 65535};
constexpr u32 kMaxThreads = 1024;
constexpr u32 kMaxCluster = 16;  // more than 8 is non-portable

template <class... Args>
Status refuse(const Program& program, fmt::format_string<Args...> format, Args&&... args) {
  return invalid("launch of {}: {}", program.expression,
                 fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

Status check_launch(const Program& program, const LaunchShape& shape, size_t args_bytes,
                    u32 smem_limit_bytes) {
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] < 1 || shape.grid[i] > kMaxGrid[i]) {
      return refuse(program, "grid[{}]={}, need 1…{}; {}", i, shape.grid[i], kMaxGrid[i],
                    shape.grid[i] == 0 ? "an empty grid needs no launch" : "use another dimension");
    }
  }
  if (shape.threads < 1 || shape.threads > kMaxThreads) {
    return refuse(program, "threads={}, need 1…{}; {}", shape.threads, kMaxThreads,
                  shape.threads == 0 ? "say how many a CTA has" : "use more CTAs");
  }
  if (shape.smem_bytes > smem_limit_bytes) {
    return refuse(program, "smem_bytes={}, need at most {}; use smaller tiles or fewer stages",
                  shape.smem_bytes, smem_limit_bytes);
  }
  if (shape.cluster < 1 || shape.cluster > kMaxCluster) {
    return refuse(program, "cluster={}, need 1…{}; 1 is no cluster", shape.cluster, kMaxCluster);
  }
  if (shape.grid[0] % shape.cluster != 0) {
    return refuse(program, "grid[0]={} is no multiple of cluster={}; round the grid up",
                  shape.grid[0], shape.cluster);
  }
  if (args_bytes < 1 || args_bytes > kMaxArgsBytes) {
    return refuse(program, "args_bytes={}, need 1…{}; pass large data by pointer", args_bytes,
                  kMaxArgsBytes);
  }
  return {};
}

}  // namespace fa3
