// SPDX-License-Identifier: BSD-3-Clause
// kernel_run.h — a problem with its tensors in the memory of a simulated device, and kernels that
// compute it, in configurations that tests compile themselves.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "api/args.h"
#include "api/buffers.h"
#include "api/problem.h"
#include "backend/launch/launch.h"
#include "plan/plan.h"
#include "sim/device.h"
#include "sim/kit.h"
#include "sim/program.h"
#include "sim/site.h"
#include "tools/verify/compare.h"
#include "tools/verify/problem.h"

namespace fa3::sim {

// A simulated device as a GpuRuntime; memory is registered by its owner.
class TestRuntime final : public GpuRuntime {
 public:
  Device device;
  bool overlaps = false;  // grids with those before, as far as they are launched so

  std::string name() const override { return "test"; }
  void* allocate(size_t, const char*) override { throw std::logic_error("not here"); }
  void release(void*) override {}
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  Result<TensorMap> encode(const TensorMapSpec& spec) override { return encode_tensor_map(spec); }
  Status prepare(const Program&, StreamRef) override { return {}; }
  Status fill(void* to, uint32_t word, size_t count, size_t apart, StreamRef) override {
    for (size_t i = 0; i < count; ++i)
      std::memcpy(static_cast<std::byte*>(to) + i * apart, &word, sizeof word);
    return {};
  }
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
    if (!overlaps) device.synchronize();
    return {};
  }
  Status synchronize() override { return {}; }
};

inline DeviceInfo test_device() {
  DeviceInfo device;
  device.backend = FA3_BACKEND_CUDA;
  device.multiprocessors = 4;
  return device;
}

class KernelRun {
 public:
  ~KernelRun() {
    for (void* base : bases_) runtime_.device.memory.remove(base);
  }
  KernelRun(const KernelRun&) = delete;
  KernelRun& operator=(const KernelRun&) = delete;

  // Runs under the device's seed; outputs are NaN before, and k and v that it appends to as they
  // were. Throws Violation.
  void run() {
    for (const auto& [data, bytes] : outputs_) std::memset(data, 0xFF, bytes);
    for (const Cache& cache : caches_)
      std::memcpy(cache.data, cache.before.data(), cache.before.size());
    const Status status =
        launch(launched_, runtime_, {}, buffers_, reinterpret_cast<std::byte*>(workspace_.data()));
    runtime_.device.synchronize();
    if (!status.ok()) throw std::runtime_error(status.message);
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all;
    for (const auto& [data, bytes] : outputs_) {
      const auto* const begin = static_cast<const unsigned char*>(data);
      all.insert(all.end(), begin, begin + bytes);
    }
    for (const Cache& cache : caches_)
      all.insert(all.end(), cache.data, cache.data + cache.before.size());
    return all;
  }
  // What kernels leave to each other.
  std::span<std::byte> workspace() { return std::as_writable_bytes(std::span(workspace_)); }
  bool has(TensorId id) const { return buffers_.data[id] != nullptr; }
  // cu_seqlens, seqused or a table as the kernel will read them; to: again and again.
  std::vector<i32> lengths(TensorId id) const {
    const i32* const begin = buffers_.in<i32>(id);
    return {begin, begin + count(id)};
  }
  void set_lengths(TensorId id, const std::vector<i32>& to) {
    i32* const values = static_cast<i32*>(buffers_.data[id]);
    for (size_t i = 0; i < static_cast<size_t>(count(id)); ++i) values[i] = to[i % to.size()];
  }
  // Does each sequence begin where those before have ended, as the kernels read cu_seqlens?
  // Nor do two of them append to the same rows.
  bool sequences_are_apart() const {
    if (problem_.appends() && problem_.cache.present()) return false;  // may
    for (const TensorId id : {kCuSeqlensQ, kCuSeqlensKv, kCuSeqlens}) {
      if (!has(id)) continue;
      std::vector<i32> cu = lengths(id);
      const i64 rows = (id == kCuSeqlensKv ? problem_.kv : problem_.q).rows;
      for (i32& row : cu) row = std::clamp(row, 0, static_cast<i32>(rows));
      if (!std::is_sorted(cu.begin(), cu.end())) return false;
    }
    return true;
  }
  // Those that it made.
  const verify::Tensors& tensors() const { return tensors_; }
  std::vector<verify::OutputResult> judge() const {
    return op_ == FA3_OP_FORWARD ? verify::compare_forward(forward_)
                                 : verify::compare_backward(backward_);
  }

 protected:
  // A backward has o and lse of the FP64 reference.
  KernelRun(TestRuntime& runtime, const verify::Config& made, fa3_op op)
      : runtime_(runtime), op_(op), tensors_(verify::make_tensors(made)) {
    forward_ = verify::forward_args(made, tensors_);
    backward_ = verify::backward_args(made, tensors_);
    const bool forward = op == FA3_OP_FORWARD;
    const Args args = forward ? value(read_args(op, &forward_)) : value(read_args(op, &backward_));
    if (!forward) compute_forward();
    take(args);
  }
  // Of tensors that outlive it; without a judge.
  KernelRun(TestRuntime& runtime, fa3_op op, const Args& args) : runtime_(runtime), op_(op) {
    take(args);
  }
  const Problem& problem() const { return problem_; }
  void set_kernels(const std::vector<fa3::Kernel>& kernels) {
    take_plan(plan_with(problem_, kernels));
  }
  void set_plan(KernelPlan plan) {
    Plan launched;
    launched.problem = problem_;
    take_plan(with_kernels(std::move(launched), std::move(plan)));
  }
  template <class T>
  static T value(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().message);
    return std::move(result.value());
  }

 private:
  void take_plan(Plan plan) {
    launched_ = std::move(plan);
    // Of cache lines, which are aligned.
    workspace_.resize(1 + kernel_bytes(launched_) / sizeof(Line));
    add("workspace", workspace_.data(), workspace_.size() * sizeof(Line));
  }
  void take(const Args& args) {
    problem_ = value(make_problem(args));
    buffers_ = value(make_buffers(args, problem_));
    for (int id = 0; id < kTensorCount; ++id) {
      if (args.tensor[static_cast<size_t>(id)].rank == 0) continue;
      const fa3_tensor& t = args.tensor[static_cast<size_t>(id)];
      u64 bytes = static_cast<u64>(dtype_bytes(t.dtype));
      for (int i = 0; i < t.rank; ++i) bytes *= static_cast<u64>(t.shape[i]);  // dense ones
      if (bytes > 0) add(tensor_name(static_cast<TensorId>(id)), t.data, bytes);
      if (is_output(id)) outputs_.push_back({t.data, bytes});
      if ((id == kK || id == kV) && problem_.appends()) {
        auto* const begin = static_cast<unsigned char*>(t.data);
        caches_.push_back({begin, {begin, begin + bytes}});
      }
    }
  }
  bool is_output(int id) const {
    if (op_ == FA3_OP_FORWARD) return id == kO || id == kLse;
    if (op_ == FA3_OP_BACKWARD) return id == kDq || id == kDk || id == kDv;
    return id == kCodes || id == kScale || id == kOffset;
  }
  int64_t count(TensorId id) const {
    if (id == kPageTable) return problem_.batch * problem_.cache.max_pages;
    return problem_.batch + (kTensors[id].form == Form::kCuSeqlens ? 1 : 0);
  }
  void compute_forward() const {
    fa3_context_options options = {};
    options.struct_size = sizeof options;
    options.backend = FA3_BACKEND_REFERENCE;
    fa3_context* made = nullptr;
    if (fa3_context_create(&options, &made) != FA3_OK) throw std::runtime_error(fa3_last_error());
    const std::unique_ptr<fa3_context, decltype(&fa3_context_destroy)> context(
        made, &fa3_context_destroy);
    if (fa3_forward(made, &forward_, nullptr) != FA3_OK) throw std::runtime_error(fa3_last_error());
  }
  void add(const char* name, void* base, u64 bytes) {
    runtime_.device.memory.add(name, base, bytes);
    bases_.push_back(base);
  }

  struct Output {
    void* data;
    u64 bytes;
  };
  struct Cache {
    unsigned char* data;
    std::vector<unsigned char> before;
  };
  TestRuntime& runtime_;
  fa3_op op_;
  verify::Tensors tensors_;
  fa3_forward_args forward_{};
  fa3_backward_args backward_{};
  Problem problem_;
  Buffers buffers_;
  struct alignas(kWorkspaceAlign) Line {
    std::byte bytes[kWorkspaceAlign];
  };
  Plan launched_;
  std::vector<Line> workspace_;
  std::vector<Output> outputs_;
  std::vector<Cache> caches_;
  std::vector<void*> bases_;
};

}  // namespace fa3::sim
