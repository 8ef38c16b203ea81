// SPDX-License-Identifier: BSD-3-Clause
// nvrtc.h — the library's own compiler of kernels, for tests that need no GPU but must have NVRTC.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/nvrtc.h"

namespace fa3::kit {

// FA3_NVRTC, else where the library looks. Throws std::runtime_error saying how to get one.
const cuda::Nvrtc& nvrtc();

// Which build of NVRTC it is, as its file says: "cuda_13.0.r13.0/compiler.36424714_0". Versions do
// not tell builds apart that emit other instructions. "" where the file does not say.
std::string nvrtc_build();

// The kernel's cubin and the compiler's report; throws with the log when it does not compile.
cuda::Compiled compile(const Program& program);

// What becomes of a source that may include device headers, with these templates instantiated;
// throws with the log when it does not compile.
struct Translation {
  std::string ptx;
  std::string cubin;
  std::string log;
  std::vector<std::string> symbols;  // mangled names of the templates, in their order
};
// `more`: headers that the source sees in addition to those of src/device.
Translation translate(const std::string& source, const std::vector<std::string>& expressions = {},
                      const HeaderSet* more = nullptr);

}  // namespace fa3::kit
