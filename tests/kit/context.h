// SPDX-License-Identifier: BSD-3-Clause
// context.h — contexts, plans and checks for tests of the C interface.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tests/kit/sanitized.h"
#include "tools/verify/check.h"

namespace fa3::kit {

struct Deleter {
  void operator()(fa3_context* context) const { fa3_context_destroy(context); }
  void operator()(fa3_plan* plan) const { fa3_plan_destroy(plan); }
};
using Context = std::unique_ptr<fa3_context, Deleter>;
using Plan = std::unique_ptr<fa3_plan, Deleter>;

// The backend under test: FA3_TEST_BACKEND=reference judges the tests themselves; default cpu.
inline fa3_backend tested_backend() {
  const char* name = std::getenv("FA3_TEST_BACKEND");
  return name != nullptr && std::strcmp(name, "reference") == 0 ? FA3_BACKEND_REFERENCE
                                                                : FA3_BACKEND_CPU;
}
inline bool tests_cpu() { return tested_backend() == FA3_BACKEND_CPU; }

// A slice for slow builds: under sanitizers tests do 1 of `reduction()` of their random cases.
inline constexpr int reduction() { return kSanitized ? 20 : 1; }

inline fa3_context_options default_options(int threads = 0) {
  fa3_context_options options{};
  options.struct_size = sizeof options;
  options.backend = tested_backend();
  options.num_threads = threads;
  return options;
}

// nullptr and a test failure when it cannot be made.
inline Context make_context(const fa3_context_options& options) {
  fa3_context* context = nullptr;
  EXPECT_EQ(fa3_context_create(&options, &context), FA3_OK) << fa3_last_error();
  return Context(context);
}
inline Context make_context(int threads = 0) { return make_context(default_options(threads)); }

// Sets an environment variable for the life of this object. Only while no other thread reads it.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(name, value, 1);
  }
  ~ScopedEnv() {
    if (had_)
      setenv(name_, before_.c_str(), 1);
    else
      unsetenv(name_);
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

// The instruction sets of the cpu backend that this processor and build have, widest last.
inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> sets;
  for (const char* name : {"scalar", "sse4", "neon", "avx2", "avx3", "avx3_bf16"}) {
    const ScopedEnv simd("FA3_SIMD", name);
    const fa3_context_options options = default_options(1);
    fa3_context* context = nullptr;
    if (fa3_context_create(&options, &context) != FA3_OK) continue;
    fa3_device_info info{};
    info.struct_size = sizeof info;
    if (fa3_get_device_info(context, &info) == FA3_OK && std::string(info.instruction_set) == name)
      sets.push_back(name);
    fa3_context_destroy(context);
  }
  return sets;
}

// Runs a problem on the tested backend and expects every output to be right.
inline void expect_right(const verify::Config& config, fa3_context* context) {
  const verify::Report report = verify::check(config, context);
  EXPECT_TRUE(report.ok) << report.text;
}
inline void expect_right(const verify::Config& config) {
  static const Context context = make_context();
  expect_right(config, context.get());
}

// The bytes of every element of a tensor, row after row.
inline std::vector<std::byte> bytes_of(const fa3_tensor& t) {
  std::vector<std::byte> bytes;
  verify::for_each_row(t, [&](const verify::Index&, void* row) {
    const auto* at = static_cast<const std::byte*>(row);
    bytes.insert(bytes.end(), at, at + t.shape[t.rank - 1] * verify::element_bytes(t.dtype));
  });
  return bytes;
}

}  // namespace fa3::kit
