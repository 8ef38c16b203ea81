// SPDX-License-Identifier: BSD-3-Clause
// readiness.h — can this machine run CUDA kernels, in a sentence.
#pragma once

#include <string>

#include "backend/cuda/driver.h"

namespace fa3::cuda {

struct Readiness {
  bool ready = false;
  std::string text;  // what is used, or what is missing and what to do
};

// The first GPU that has kernels, else why the last one has none.
Result<GpuInfo> first_gpu(const Driver& driver);

// Looks for a driver, a GPU with kernels and an NVRTC that fit each other. `nvrtc`: the library to
// use; "" = search.
Readiness readiness(const std::string& nvrtc);

}  // namespace fa3::cuda
