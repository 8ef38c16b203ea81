// SPDX-License-Identifier: BSD-3-Clause
// recorder.h — a runtime that runs nothing and keeps what a launch is given.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "backend/launch/launch.h"

namespace fa3::test {

template <class Args>
class Recorder : public GpuRuntime {
 public:
  std::map<std::string, TensorMapSpec> specs;
  Args args{};
  LaunchShape shape;

  std::string name() const override { return "recorder"; }
  void* allocate(size_t, const char*) override { return nullptr; }
  void release(void*) override {}
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  Result<TensorMap> encode(const TensorMapSpec& spec) override {
    specs[spec.name] = spec;
    return TensorMap{};
  }
  Status prepare(const Program&, StreamRef) override { return {}; }
  Status zero(void*, size_t, StreamRef) override { return {}; }
  Status fill(void*, uint32_t, size_t, size_t, StreamRef) override { return {}; }
  Status launch(const Program&, const LaunchShape& given, const void* from, size_t bytes,
                StreamRef) override {
    EXPECT_EQ(bytes, sizeof args);
    std::memcpy(&args, from, sizeof args);
    shape = given;
    return {};
  }
  Status synchronize() override { return {}; }
};

}  // namespace fa3::test
