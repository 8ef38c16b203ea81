// SPDX-License-Identifier: BSD-3-Clause
// decode_kit.h — the decode kernels in any configuration, in the simulator.
#pragma once

#include "device/sm90/decode/combine.cuh"
#include "device/sm90/decode/decode.cuh"
#include "plan/sm90/decode/plan.h"
#include "sim/kernel_run.h"

namespace fa3::sim {

using namespace sm90;

// Rings that go round several times, and 64 columns.
constexpr DecodeConfig small_decode(bool ragged) {
  DecodeConfig c;
  c.head_dim_qk = c.head_dim_v = 64;
  c.rows = 16;
  c.stages = 2;
  c.ragged = ragged;
  return c;
}

constexpr DecodeConfig small_decode(KvSource kv) {
  DecodeConfig c = small_decode(true);
  c.kv = kv;
  return c;
}

constexpr DecodeConfig two_consumers(DecodeConfig c) {
  c.consumers = 2;
  return c;
}

constexpr DecodeConfig with_clusters(DecodeConfig c) {
  c.clusters = true;
  return c;
}

// Keys of E4M3; as many consumers take turns, or share the rows.
constexpr DecodeConfig of_codes(DecodeConfig c, int consumers, bool in_turns) {
  c.kv8 = true, c.in_turns = in_turns;
  c.consumers = consumers;
  if (in_turns) c.stages = consumers;
  return c;
}

// So many packed rows as the rows of GEMMs.
constexpr DecodeConfig wide(DecodeConfig c, int rows) {
  c.wide = true;
  c.rows = rows, c.consumers = rows / kWgRows;
  c.one_tile = false;
  return c;
}

template <DecodeConfig kCfg>
void add_decode() {
  constexpr CombineConfig kCombine = combine_of(kCfg);
  const Registration decoding(decode_expression(kCfg).c_str(), kernel_of(&decode<kCfg>));
  const Registration combining(combine_expression(kCombine).c_str(), kernel_of(&combine<kCombine>));
}
class DecodeRun : public KernelRun {
 public:
  DecodeRun(TestRuntime& runtime, const verify::Config& made, const DecodeConfig& config,
            int multiprocessors, int cluster = 1, bool merges = true)
      : KernelRun(runtime, made, FA3_OP_FORWARD) {
    DeviceInfo device = test_device();
    device.multiprocessors = multiprocessors;
    const Problem& p = problem();
    const FwdPlan forward = value(make_fwd_plan(config.kv8 ? of_16_bits(p) : p, device));
    DecodePlans plans = make_decode_plans(config, forward, problem(), device);
    if (config.clusters) set_cluster(plans.decode, problem(), cluster);
    std::vector<fa3::Kernel> kernels{plans.decode};
    if (merges && plans.combine.merges()) kernels.push_back(plans.combine);
    set_kernels(kernels);
  }
};

}  // namespace fa3::sim
