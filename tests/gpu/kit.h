// SPDX-License-Identifier: BSD-3-Clause
// kit.h — the GPU of this machine for tests; without one they are skipped with the reason.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cuda/runtime.h"

namespace fa3::gpu {

// Without a cache: every run compiles.
inline cuda::JitOptions jit_options() {
  cuda::JitOptions options;
  if (const char* nvrtc = std::getenv("FA3_NVRTC")) options.nvrtc = nvrtc;
  const Result<const cuda::Driver*> driver = cuda::Driver::system();
  if (driver.ok()) options.driver_version = driver.value()->version();
  return options;
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<const cuda::Driver*> driver = cuda::Driver::system();
    if (!driver.ok()) GTEST_SKIP() << driver.status().message;
    driver_ = driver.value();
    const Result<cuda::GpuInfo> gpu = driver_->gpu(0);
    if (!gpu.ok()) GTEST_SKIP() << gpu.status().message;
    runtime_ = open(0);
  }

  std::unique_ptr<cuda::CudaRuntime> open(int device) {
    auto runtime = cuda::CudaRuntime::open(*driver_, jit(), device);
    if (!runtime.ok()) throw std::runtime_error(runtime.status().message);
    return std::move(runtime).value();
  }

  // Of the library's own device code.
  virtual cuda::Jit& jit() {
    static cuda::Jit jit(jit_options());
    return jit;
  }

  template <class T>
  T* upload(const std::vector<T>& values, const char* name) {
    T* const memory = static_cast<T*>(runtime_->allocate(values.size() * sizeof(T), name));
    runtime_->upload(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }

  template <class T>
  std::vector<T> download(const T* memory, size_t count) {
    std::vector<T> values(count);
    runtime_->download(values.data(), memory, count * sizeof(T));
    return values;
  }

  const cuda::Driver* driver_ = nullptr;
  std::unique_ptr<cuda::CudaRuntime> runtime_;
};

#define FA3_EXPECT_OK(...)                                \
  do {                                                    \
    const ::fa3::Status fa3_status_ = (__VA_ARGS__);      \
    EXPECT_TRUE(fa3_status_.ok()) << fa3_status_.message; \
  } while (false)

}  // namespace fa3::gpu
