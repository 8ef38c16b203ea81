// SPDX-License-Identifier: BSD-3-Clause
// fake_driver.h — what the fake libcuda knows about its use.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/driver_api.h"

// The argument struct of the fake's only kernel: symbol "kernel" in the library "cubin".
struct FakeArgs {
  int value = 0;
  int other = 0;
};

struct FakeCuda {
  std::string calls;       // names of the functions called, each with a blank behind it
  std::string attributes;  // of kernels: "attribute=value "
  int retained = 0;        // primary contexts
  int allocations = 0, streams = 0, events = 0, libraries = 0;
  int loads = 0;                       // of code, those that failed too
  fa3::cuda::CUlaunchConfig launch{};  // the last one
  std::vector<fa3::cuda::CUlaunchAttribute> launch_attributes;
  FakeArgs args;
};
