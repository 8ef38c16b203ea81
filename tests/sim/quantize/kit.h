// SPDX-License-Identifier: BSD-3-Clause
// kit.h — the quantising kernels in any configuration, in the simulator.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "device/sm90/quantize/codes.cuh"
#include "device/sm90/quantize/maxima.cuh"
#include "device/sm90/quantize/means.cuh"
#include "plan/sm90/quantize_plan.h"
#include "sim/kernel_run.h"

namespace fa3::sim {

using namespace sm90;

// What is quantised: BF16 in INT8, turned.
struct Quantised {
  int head_dim;
  int hadamard;
  int block_rows;  // 0 = a scale for each head
  bool means;
};

// Compiled into the test: its kernels.
template <int kHeadDim, int kHadamard, int kBlockRows>
bool add_quantize() {
  constexpr TurnConfig kTurn{.x = FloatType::kBf16, .head_dim = kHeadDim, .hadamard = kHadamard};
  constexpr QuantizeConfig kConfig{kTurn, true, kBlockRows};
  const auto add = [&](QuantizePass pass, Kernel kernel) {
    QuantizePlan plan;
    plan.pass = pass, plan.config = kConfig;
    const Registration made(program_of(plan).expression.c_str(), std::move(kernel));
  };
  add(QuantizePass::kMeans, kernel_of(&quantize_means<kTurn>));
  add(QuantizePass::kMaxima, kernel_of(&quantize_maxima<kConfig>));
  add(QuantizePass::kCodes, kernel_of(&quantize_codes<kConfig>));
  return true;
}
// fa3_quantize of one sequence in two heads. On one SM a CTA goes over several tiles.
class QuantizeRun {
 public:
  static constexpr int kSeqlen = 1100, kHeads = 2;

  // two_passes: maxima of blocks by a kernel of their own, as where no CTA can hold one.
  QuantizeRun(TestRuntime& runtime, const Quantised& m, bool two_passes = false)
      : runtime_(runtime),
        x_(static_cast<size_t>(kSeqlen * kHeads * m.head_dim)),
        codes_(x_.size()),
        scale_(
            static_cast<size_t>(kHeads * (m.block_rows == 0 ? 1 : div_up(kSeqlen, m.block_rows)))),
        mean_(static_cast<size_t>(kHeads * m.head_dim)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (u16& bits : x_) bits = static_cast<u16>(std::bit_cast<u32>(normal(random)) >> 16);
    fa3_quantize_args a{};
    a.struct_size = sizeof a;
    const int64_t d = m.head_dim, blocks = static_cast<int64_t>(scale_.size()) / kHeads;
    a.x = tensor(x_.data(), FA3_BF16, {1, kSeqlen, kHeads, d});
    a.codes = tensor(codes_.data(), FA3_I8, {1, kSeqlen, kHeads, d});
    a.scale = tensor(scale_.data(), FA3_F32, {1, kHeads, blocks, 1});
    if (m.means) a.offset = tensor(mean_.data(), FA3_F32, {1, kHeads, d});
    a.block = {m.block_rows, 0};
    a.hadamard = m.hadamard, a.seed = 1;
    const Args args = value(read_args(FA3_OP_QUANTIZE, &a));
    problem_ = value(make_problem(args));
    buffers_ = value(make_buffers(args, problem_));
    DeviceInfo device = test_device();
    device.multiprocessors = 1;
    device.compiled_ahead = two_passes;
    std::vector<KernelStep> steps;
    for (const QuantizePlan& plan : value(make_quantize_plans(problem_, device)))
      steps.push_back(step_of(plan, 0));
    kernels_ = steps.size();
    launched_ = plan_with(problem_, std::move(steps));
    workspace_.resize(1 + kernel_bytes(launched_) / sizeof(Line));
    const auto add = [&](const char* name, auto& of) {
      runtime_.device.memory.add(name, of.data(), of.size() * sizeof(of[0]));
    };
    add("x", x_), add("codes", codes_), add("scale", scale_), add("offset", mean_);
    add("workspace", workspace_);
  }
  ~QuantizeRun() {
    for (void* base : {static_cast<void*>(x_.data()), static_cast<void*>(codes_.data()),
                       static_cast<void*>(scale_.data()), static_cast<void*>(mean_.data()),
                       static_cast<void*>(workspace_.data())})
      runtime_.device.memory.remove(base);
  }
  QuantizeRun(const QuantizeRun&) = delete;
  QuantizeRun& operator=(const QuantizeRun&) = delete;

  // Throws Violation.
  void run() {
    std::fill(codes_.begin(), codes_.end(), u8{0xFF});
    std::fill(scale_.begin(), scale_.end(), -7.f);
    std::fill(mean_.begin(), mean_.end(), -7.f);
    const Status status =
        launch(launched_, runtime_, {}, buffers_, reinterpret_cast<std::byte*>(workspace_.data()));
    if (!status.ok()) throw std::runtime_error(status.message);
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all(codes_.begin(), codes_.end());
    for (const std::vector<float>* of : {&scale_, &mean_}) {
      const auto* const begin = reinterpret_cast<const unsigned char*>(of->data());
      all.insert(all.end(), begin, begin + of->size() * sizeof(float));
    }
    return all;
  }

  size_t kernels() const { return kernels_; }

 private:
  template <class T>
  static T value(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().message);
    return std::move(result.value());
  }
  static fa3_tensor tensor(void* data, fa3_dtype dtype, const std::vector<int64_t>& shape) {
    return fa3_dense(data, dtype, static_cast<int32_t>(shape.size()), shape.data());
  }

  TestRuntime& runtime_;
  std::vector<u16> x_;
  std::vector<u8> codes_;
  std::vector<float> scale_, mean_;
  Problem problem_;
  Buffers buffers_;
  struct alignas(kWorkspaceAlign) Line {
    std::byte bytes[kWorkspaceAlign];
  };
  Plan launched_;
  size_t kernels_ = 0;
  std::vector<Line> workspace_;
};

}  // namespace fa3::sim
