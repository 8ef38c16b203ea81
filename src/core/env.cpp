// SPDX-License-Identifier: BSD-3-Clause
// env.cpp — the table of environment variables and their parsers. A program with more rights than
// its caller (setuid) sees none of them: they name code that is loaded.
#include "core/env.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace fa3 {
namespace {

// One variable: its purpose, its legal values, and how its text becomes a field of Environment
// (false = malformed).
struct Variable {
  const char* name;
  const char* default_value;
  const char* meaning;
  const char* legal;
  bool (*parse)(const char* text, Environment& environment);
};

bool parse_num_threads(const char* text, Environment& environment) {
  int threads = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, threads);
  if (error != std::errc() || stop != end || threads < 1 || threads > kMaxThreads) return false;
  environment.num_threads = threads;
  return true;
}

bool parse_simd(const char* text, Environment& environment) {
  for (Isa isa : {Isa::kScalar, Isa::kSse4, Isa::kAvx2, Isa::kAvx3, Isa::kAvx3Bf16, Isa::kNeon}) {
    if (std::strcmp(text, isa_name(isa)) == 0) {
      environment.simd = isa;
      return true;
    }
  }
  return false;
}

bool parse_cache_dir(const char* text, Environment& environment) {
  environment.cache_dir = text;
  return text[0] == '/';
}

bool parse_kernel_pack(const char* text, Environment& environment) {
  environment.kernel_pack = text;
  return text[0] == '/';
}

bool parse_nvrtc(const char* text, Environment& environment) {
  environment.nvrtc = text;
  return text[0] == '/';
}

bool parse_tuning(const char* text, Environment& environment) {
  environment.tuning = text;
  return text[0] == '/';
}

bool parse_check(const char* text, Environment& environment) {
  environment.check = std::strcmp(text, "1") == 0;
  return environment.check || std::strcmp(text, "0") == 0;
}

bool parse_sim_trace(const char* text, Environment& environment) {
  environment.sim_trace = text;
  return true;
}

bool parse_sim_seed(const char* text, Environment& environment) {
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, environment.sim_seed);
  return error == std::errc() && stop == end;
}

static_assert(kMaxThreads == 1024, "the table below says so");
constexpr Variable kVariables[] = {
    {"FA3_NUM_THREADS", "every core allowed to the process",
     "most threads that a run uses, where the context's options leave num_threads at 0",
     "a number in 1…1024", parse_num_threads},
    {"FA3_SIMD", "the fastest that processor and build have",
     "instruction set that the cpu backend uses",
     "one of scalar, sse4, avx2, avx3, avx3_bf16, neon", parse_simd},
    {"FA3_CACHE_DIR", "$XDG_CACHE_HOME/fa3, else ~/.cache/fa3",
     "folder of compiled kernels, where the context's options leave cache_dir at NULL",
     "an absolute path", parse_cache_dir},
    {"FA3_KERNEL_PACK", "none",
     "file of precompiled kernels, where the context's options leave kernel_pack at NULL",
     "an absolute path", parse_kernel_pack},
    {"FA3_NVRTC", "searched for: loader, /usr/local/cuda, pip's packages beside fa3",
     "the NVRTC library that compiles kernels", "an absolute path", parse_nvrtc},
    {"FA3_TUNING", "none",
     "file of `fa3 tune`: the tiles that were fastest on this GPU, for the problems measured",
     "an absolute path", parse_tuning},
    {"FA3_CHECK", "0",
     "1 = a run on a GPU waits for its stream, reads cu_seqlens, seqused, rotary_position and "
     "scales, and refuses what the cpu backend would; for finding errors, since it is slow",
     "0 or 1", parse_check},
    {"FA3_SIM_TRACE", "none", "file for the event log of backend sim's latest launch, for Perfetto",
     "a path", parse_sim_trace},
    {"FA3_SIM_SEED", "0",
     "seed of backend sim's schedule: who runs next, and when asynchronous work takes effect",
     "a whole number of 64 bits", parse_sim_seed},
};

// The variable's value where it is an absolute path; "" otherwise.
std::string absolute_path_of(const char* name) {
  const char* text = secure_getenv(name);
  return text != nullptr && text[0] == '/' ? text : "";
}

}  // namespace

// An empty value counts as unset, as in most programs.
Result<Environment> read_environment() {
  Environment environment;
  for (const Variable& variable : kVariables) {
    const char* text = secure_getenv(variable.name);
    if (text == nullptr || *text == '\0') continue;
    if (!variable.parse(text, environment)) {
      return invalid("environment: {}={} is malformed; need {}; correct or unset it", variable.name,
                     text, variable.legal);
    }
  }
  return environment;
}

std::vector<EnvironmentVariable> environment_variables() {
  std::vector<EnvironmentVariable> rows;
  for (const Variable& variable : kVariables) {
    const char* text = secure_getenv(variable.name);
    rows.push_back({variable.name, variable.default_value, variable.meaning, std::nullopt});
    if (text != nullptr) rows.back().value = text;
  }
  return rows;
}

std::string user_cache_folder() {
  std::string folder = absolute_path_of("XDG_CACHE_HOME");
  if (!folder.empty()) return folder;
  const std::string home = absolute_path_of("HOME");
  return home.empty() ? "" : home + "/.cache";
}

std::string loader_folders() {
  const char* text = secure_getenv("LD_LIBRARY_PATH");
  return text == nullptr ? "" : text;
}

}  // namespace fa3
