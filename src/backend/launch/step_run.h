// SPDX-License-Identifier: BSD-3-Clause
// step_run.h — a step of a plan that is being run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/problem.h"
#include "plan/steps.h"
#include "runtime/gpu_runtime.h"

namespace fa3 {

// The addresses of most kernels' tensors are free.
inline Status check_addresses(const PlainKernel&, const Problem&, const Buffers&) { return {}; }

// buffers were validated against problem, which has rows, and passed check_addresses; their
// addresses are in the runtime's memory. workspace: the plan's, aligned.
struct StepRun {
  const KernelStep& step;
  GpuRuntime& runtime;
  StreamRef stream;
  const Problem& problem;
  const Buffers& buffers;
  std::byte* workspace;

  // The slice of that name, from element `first` on; null where the kernel uses none.
  template <class T>
  T* slice(std::string_view name, int64_t first = 0) const {
    T* const begin = reinterpret_cast<T*>(step.slice(name, workspace));
    return begin == nullptr ? nullptr : begin + first;
  }

  template <class Args>
  Status launch(const Args& args) const {
    return runtime.launch(step.program, step.shape, &args, sizeof args, stream);
  }
};

}  // namespace fa3
