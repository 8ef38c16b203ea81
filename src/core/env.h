// SPDX-License-Identifier: BSD-3-Clause
// env.h — the registry of environment variables: the only place of the library that reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/status.h"

namespace fa3 {

// What the environment asks for, parsed. Read once, when a context is created.
struct Environment {
  int num_threads = 0;      // FA3_NUM_THREADS; 0 = unset
  std::optional<Isa> simd;  // FA3_SIMD: the instruction set to use; unset = the fastest
  std::string cache_dir;    // FA3_CACHE_DIR: folder of compiled kernels; "" = unset
  std::string kernel_pack;  // FA3_KERNEL_PACK: file of precompiled kernels; "" = unset
  std::string nvrtc;        // FA3_NVRTC: the NVRTC library to use; "" = unset
  std::string tuning;       // FA3_TUNING: file of `fa3 tune`; "" = unset
  bool check = false;     // FA3_CHECK: lengths, positions and scales of a GPU are read and checked
  std::string sim_trace;  // FA3_SIM_TRACE: where backend sim writes an event log; "" = unset
  uint64_t sim_seed = 0;  // FA3_SIM_SEED: every choice of backend sim's schedule follows from it
};

// INVALID_ARGUMENT naming variable, value and what is legal, when one is malformed.
Result<Environment> read_environment();

// One row per variable, for fa3_environment() and the documentation.
struct EnvironmentVariable {
  const char* name;
  const char* default_value;
  const char* meaning;
  std::optional<std::string> value;  // as it stands now
};
std::vector<EnvironmentVariable> environment_variables();

// The user's folder for caches by the XDG convention: $XDG_CACHE_HOME, else $HOME/.cache; "" where
// neither is set to an absolute path.
std::string user_cache_folder();

// $LD_LIBRARY_PATH, where the system's loader looks for libraries first; "" when unset.
std::string loader_folders();

}  // namespace fa3
