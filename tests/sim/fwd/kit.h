// SPDX-License-Identifier: BSD-3-Clause
// kit.h — the forward kernel in any configuration, in the simulator: programs that are compiled
// into the test, a problem with its tensors, the plan of that problem with fields changed.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "api/args.h"
#include "api/buffers.h"
#include "api/problem.h"
#include "backend/launch/launch.h"
#include "device/sm90/ablation/fwd_ablation.cuh"
#include "device/sm90/fwd/fwd.cuh"
#include "device/sm90/fwd/v_image.cuh"
#include "plan/sm90/fwd_configs.h"
#include "sim/device.h"
#include "sim/kit.h"
#include "sim/program.h"
#include "sim/site.h"
#include "tools/verify/compare.h"
#include "tools/verify/problem.h"

namespace fa3::sim {

using namespace sm90;

// A simulated device as a GpuRuntime; memory is registered by its owner.
class TestRuntime final : public GpuRuntime {
 public:
  Device device;

  std::string name() const override { return "test"; }
  void* allocate(size_t, const char*) override { throw std::logic_error("not here"); }
  void release(void*) override {}
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  Result<TensorMap> encode(const TensorMapSpec& spec) override { return encode_tensor_map(spec); }
  Status prepare(const Program&, StreamRef) override { return {}; }
  Status zero(void* to, size_t bytes, StreamRef) override {
    device.synchronize();
    std::memset(to, 0, bytes);
    return {};
  }
  using GpuRuntime::launch;
  Status launch(const Program& program, const LaunchShape& shape, const void* args, size_t,
                StreamRef) override {
    const Kernel* const kernel = find_program(program.expression);
    if (kernel == nullptr) throw std::logic_error("not compiled in: " + program.expression);
    device.launch(*kernel, shape, args);
    device.synchronize();
    return {};
  }
  Status synchronize() override { return {}; }
};

// Compiles a configuration into the test; kBoth: with both functors.
template <FwdConfig kCfg, bool kBoth = false>
void add_fwd() {
  static_assert(why_illegal(kCfg) == nullptr);
  if constexpr (kBoth) {
    const Registration made(fwd_expression(kCfg, {true, true}).c_str(),
                            kernel_of(&fwd<kCfg, AlibiScore, SequenceIdMask>));
  } else if constexpr (kCfg.ablation()) {
    const Registration made(fwd_expression(kCfg).c_str(), kernel_of(&fwd_ablation<kCfg>));
  } else {
    const Registration made(fwd_expression(kCfg).c_str(), kernel_of(&fwd<kCfg>));
    if constexpr (kCfg.v_image) {
      constexpr VImageConfig kImage{kCfg.turned_v(), kCfg.ragged};
      const Registration image(v_image_expression(kImage).c_str(), kernel_of(&v_image<kImage>));
    }
  }
}

// A problem with its tensors in a device's memory, and the plan for it with another configuration.
class FwdRun {
 public:
  FwdRun(TestRuntime& runtime, const verify::Config& made, const FwdConfig& config)
      : runtime_(runtime), tensors_(verify::make_tensors(made)) {
    args_ = verify::forward_args(made, tensors_);
    const Args args = value(read_args(FA3_OP_FORWARD, &args_));
    problem_ = value(make_problem(args));
    buffers_ = value(make_buffers(args, problem_));
    DeviceInfo device;
    device.backend = FA3_BACKEND_CUDA;
    device.multiprocessors = 4;
    plan_ = value(make_fwd_plan(problem_, device));
    plan_ = with_config(plan_, config, problem_, device.multiprocessors);
    for (int id = 0; id < kTensorCount; ++id) {
      if (args.tensor[static_cast<size_t>(id)].rank == 0) continue;
      const fa3_tensor& t = args.tensor[static_cast<size_t>(id)];
      u64 bytes = static_cast<u64>(dtype_bytes(t.dtype));
      for (int i = 0; i < t.rank; ++i) bytes *= static_cast<u64>(t.shape[i]);  // dense ones
      if (bytes > 0) add(tensor_name(static_cast<TensorId>(id)), t.data, bytes);
      if (id == kO || id == kLse) outputs_.push_back({t.data, bytes});
    }
    std::vector<KernelStep> steps;
    if (plan_.config.v_image) steps.push_back(step_of(make_v_image_plan(plan_, problem_), 0));
    steps.push_back(step_of(plan_, 0));
    launched_ = plan_with(problem_, std::move(steps));
    // Of cache lines, which are aligned.
    workspace_.resize(1 + kernel_bytes(launched_) / sizeof(Line));
    add("workspace", workspace_.data(), workspace_.size() * sizeof(Line));
  }
  ~FwdRun() {
    for (void* base : bases_) runtime_.device.memory.remove(base);
  }
  FwdRun(const FwdRun&) = delete;
  FwdRun& operator=(const FwdRun&) = delete;

  const FwdPlan& plan() const { return plan_; }
  // Runs under the device's seed; O and LSE are NaN before. Throws Violation.
  void run() {
    for (const auto& [data, bytes] : outputs_) std::memset(data, 0xFF, bytes);
    const Status status =
        launch(launched_, runtime_, {}, buffers_, reinterpret_cast<std::byte*>(workspace_.data()));
    if (!status.ok()) throw std::runtime_error(status.message);
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all;
    for (const auto& [data, bytes] : outputs_) {
      const auto* const begin = static_cast<const unsigned char*>(data);
      all.insert(all.end(), begin, begin + bytes);
    }
    return all;
  }
  // cu_seqlens or seqused as the kernel will read them.
  std::vector<i32> lengths(TensorId id) const {
    const i32* const begin = buffers_.in<i32>(id);
    return {begin, begin + count(id)};
  }
  void set_lengths(TensorId id, const std::vector<i32>& to) {
    std::memcpy(buffers_.data[id], to.data(), static_cast<size_t>(count(id)) * sizeof(i32));
  }
  std::vector<verify::OutputResult> judge() const { return verify::compare_forward(args_); }

 private:
  int64_t count(TensorId id) const {
    return problem_.batch + (id == kCuSeqlensQ || id == kCuSeqlensKv ? 1 : 0);
  }
  template <class T>
  static T value(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().message);
    return std::move(result.value());
  }
  void add(const char* name, void* base, u64 bytes) {
    runtime_.device.memory.add(name, base, bytes);
    bases_.push_back(base);
  }

  struct Output {
    void* data;
    u64 bytes;
  };
  TestRuntime& runtime_;
  verify::Tensors tensors_;
  fa3_forward_args args_{};
  Problem problem_;
  Buffers buffers_;
  FwdPlan plan_;
  struct alignas(kWorkspaceAlign) Line {
    std::byte bytes[kWorkspaceAlign];
  };
  Plan launched_;
  std::vector<Line> workspace_;
  std::vector<Output> outputs_;
  std::vector<void*> bases_;
};

}  // namespace fa3::sim
