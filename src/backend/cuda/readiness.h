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

// The first Hopper GPU, else why the last GPU is not one.
Result<GpuInfo> first_hopper(const Driver& driver);

// Looks for a driver, a Hopper GPU and an NVRTC that fit each other. `nvrtc`: the library to use;
// "" = search.
Readiness readiness(const std::string& nvrtc);

}  // namespace fa3::cuda
