// SPDX-License-Identifier: BSD-3-Clause
// kit.h — the quantising kernels in any configuration, in the simulator.
#pragma once

#include <bit>
#include <random>
#include <vector>

#include "device/sm90/quantize/codes.cuh"
#include "device/sm90/quantize/maxima.cuh"
#include "device/sm90/quantize/means.cuh"
#include "device/sm90/quantize/rotated.cuh"
#include "plan/sm90/quantize/plan.h"
#include "sim/kernel_run.h"

namespace fa3::sim {

using namespace sm90;

// What is quantised: BF16 in INT8, turned, and rotated before where there are angles for it.
struct Quantised {
  int head_dim;
  int hadamard;
  int block_rows;  // 0 = a scale for each head
  bool means;
  int rotary_dim = 0;
  bool varlen = false;  // three sequences with all of cu_seqlens, seqused and rotary_position
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

// The kernel for rotated rows with a scale each.
template <int kHeadDim>
bool add_rotated() {
  constexpr TurnConfig kTurn{.x = FloatType::kBf16,
                             .head_dim = kHeadDim,
                             .hadamard = kHeadDim,
                             .rotary = RotaryKind::kHalves,
                             .rotary_dim = kHeadDim};
  constexpr RotatedConfig kConfig = RotatedConfig::of({kTurn, true, 1});
  QuantizePlan plan;
  plan.pass = QuantizePass::kRotated, plan.config = kConfig.codes;
  plan.row_blocks = kConfig.row_blocks;
  const Registration made(program_of(plan).expression.c_str(),
                          kernel_of(&quantize_rotated<kConfig>));
  return true;
}

// One sequence in a few heads, or three.
class QuantizeTensors {
 protected:
  explicit QuantizeTensors(const Quantised& q)
      : heads_(q.rotary_dim > 0 ? 7 : 2),
        rows_(q.varlen           ? 120
              : q.rotary_dim > 0 ? 300
                                 : 1100),
        batch_(q.varlen ? 3 : 1),
        most_(q.varlen ? 60 : rows_),
        x_(static_cast<size_t>(rows_ * heads_ * q.head_dim)),
        codes_(x_.size()),
        scale_(static_cast<size_t>(batch_ * heads_ *
                                   (q.block_rows == 0 ? 1 : div_up(most_, q.block_rows)))),
        mean_(static_cast<size_t>(batch_ * heads_ * q.head_dim)),
        cosine_(static_cast<size_t>(rows_ * q.rotary_dim / 2), 0.5f),
        sine_(cosine_) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (u16& bits : x_) bits = static_cast<u16>(std::bit_cast<u32>(normal(random)) >> 16);
    args_.struct_size = sizeof args_;
    const int64_t d = q.head_dim, blocks = static_cast<int64_t>(scale_.size()) / (batch_ * heads_);
    const std::vector<int64_t> of_x =
        q.varlen ? std::vector{rows_, heads_, d} : std::vector{batch_, rows_, heads_, d};
    args_.x = tensor(x_.data(), FA3_BF16, of_x);
    args_.codes = tensor(codes_.data(), FA3_I8, of_x);
    args_.scale = tensor(scale_.data(), FA3_F32, {batch_, heads_, blocks, 1});
    if (q.means) args_.offset = tensor(mean_.data(), FA3_F32, {batch_, heads_, d});
    args_.block = {q.block_rows, 0};
    args_.hadamard = q.hadamard, args_.seed = 1;
    if (q.varlen) {
      args_.cu_seqlens = tensor(cu_seqlens_, FA3_I32, {batch_ + 1});
      args_.seqused = tensor(seqused_, FA3_I32, {batch_});
      args_.max_seqlen = most_;
    }
    if (q.rotary_dim == 0) return;
    args_.rotary_cos = tensor(cosine_.data(), FA3_F32, {rows_, q.rotary_dim / 2});
    args_.rotary_sin = tensor(sine_.data(), FA3_F32, {rows_, q.rotary_dim / 2});
    if (q.varlen) args_.rotary_position = tensor(position_, FA3_I32, {batch_});
  }

  fa3_quantize_args args_{};

 private:
  static fa3_tensor tensor(void* data, fa3_dtype dtype, const std::vector<int64_t>& shape) {
    return fa3_dense(data, dtype, static_cast<int32_t>(shape.size()), shape.data());
  }

  int64_t heads_, rows_, batch_, most_;
  i32 cu_seqlens_[4] = {0, 60, 70, 110}, seqused_[3] = {50, 10, 40}, position_[3] = {3, 0, 20};
  std::vector<u16> x_;
  std::vector<u8> codes_;
  std::vector<float> scale_, mean_, cosine_, sine_;
};

// On one SM, so that a CTA goes over several tiles.
class QuantizeRun : private QuantizeTensors, public KernelRun {
 public:
  // two_passes: maxima of blocks by a kernel of their own, as where no CTA can hold one.
  QuantizeRun(TestRuntime& runtime, const Quantised& q, bool two_passes = false)
      : QuantizeTensors(q),
        KernelRun(runtime, FA3_OP_QUANTIZE, value(read_args(FA3_OP_QUANTIZE, &args_))) {
    DeviceInfo device = test_device();
    device.multiprocessors = 1;
    QuantizeConfig config = value(quantize_config(problem()));
    if (two_passes) config.block_rows = 0;
    const std::vector<QuantizePlan> plans = value(quantize_plans_of(config, problem(), device));
    kernels_ = plans.size();
    set_kernels({plans.begin(), plans.end()});
  }
  size_t kernels() const { return kernels_; }

 private:
  size_t kernels_ = 0;
};

}  // namespace fa3::sim
