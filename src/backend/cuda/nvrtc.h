// SPDX-License-Identifier: BSD-3-Clause
// nvrtc.h — NVIDIA's run-time compiler: found, opened at run time, and run on one program.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/device_headers.h"
#include "backend/cuda/driver_api.h"
#include "core/shared_library.h"
#include "core/status.h"
#include "runtime/gpu_runtime.h"

namespace fa3::cuda {

// A compiled program: what the driver loads and the kernel's name in it.
struct Cubin {
  std::string symbol;
  std::string image;

  bool operator==(const Cubin&) const = default;
};

// A cubin and what the compiler reported: registers, spills, advisories.
struct Compiled {
  Cubin cubin;
  std::string log;
};

struct NvrtcFunctions {
#define FA3_DECLARE(name, parameters) nvrtcResult(*name) parameters = nullptr;
  FA3_NVRTC_FUNCTIONS(FA3_DECLARE)
#undef FA3_DECLARE
  const char* (*nvrtcGetErrorString)(nvrtcResult result) = nullptr;
};

// What every kernel is compiled with; part of a cubin's key.
std::vector<std::string> compiler_options(const std::string& arch);

class Nvrtc : public NvrtcFunctions {
 public:
  // UNSUPPORTED with the reason: no library, too old, no function.
  static Result<Nvrtc> open(const std::string& library);

  int version() const { return version_; }  // as CUDA's, 12040 = 12.4
  const std::string& path() const { return path_; }

  // Sees `headers` and the program's own. Needs no GPU. JIT_FAILED with the compiler's log. Safe to
  // call from many threads.
  Result<Compiled> compile(const Program& program, std::span<const DeviceHeader> headers) const;

 private:
  Nvrtc() = default;

  int version_ = 0;
  std::string path_;
};

// Where NVRTC is searched for, in this order: names for the loader, then the paths that exist.
std::vector<std::string> nvrtc_places();

// The first of `places` that can be opened and whose cubins a driver of that version loads (0 = any
// driver). UNSUPPORTED with what is wrong with each.
Result<Nvrtc> find_nvrtc(const std::vector<std::string>& places, int driver_version);

// Does a driver load what that NVRTC compiles? It takes cubins of its own major version and older.
bool loads(int driver_version, int nvrtc_version);

}  // namespace fa3::cuda
