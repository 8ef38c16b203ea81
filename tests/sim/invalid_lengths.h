// SPDX-License-Identifier: BSD-3-Clause
// invalid_lengths.h — cu_seqlens, seqused and rotary_position in device memory are read by kernels
// alone and may hold anything: whatever they hold, the kernels end and touch nothing outside of the
// tensors. (Two sequences that claim the same rows both write them: that race is theirs.)
#pragma once

#include <climits>
#include <random>
#include <string>
#include <vector>

#include "sim/kernel_run.h"

namespace fa3::sim {

// Three sequences with all of cu_seqlens and seqused; 270 queries, 190 keys.
inline verify::Config with_lengths() {
  verify::Config p;
  p.dtype = FA3_BF16;
  p.heads_q = 2;
  p.alignment = 16;
  p.varlen_q = {150, 20, 100};
  p.varlen_kv = {80, 40, 70};
  p.seqused_q = {100, 20, 90};
  p.seqused_kv = {80, 10, 60};
  return p;
}

class InvalidLengths {
 public:
  InvalidLengths(TestRuntime& runtime, KernelRun& run)
      : seed_(runtime.device.options.seed), run_(run) {}

  void expect_named_ones_harmless() {
    for (const TensorId id : kLengths) {
      if (!run_.has(id)) continue;
      const std::vector<i32> truth = run_.lengths(id);
      for (const std::vector<i32>& wrong : kInvalid) {
        run_.set_lengths(id, wrong);
        expect_harmless(tensor_name(id) + (": " + testing::PrintToString(wrong)));
      }
      run_.set_lengths(id, truth);
    }
  }
  // Of all sequences at the same time, where all their rows count.
  void expect_named_sequences_harmless() {
    for (const std::vector<i32>& wrong : kInvalid) {
      for (const TensorId id : kLengths) {
        if (!run_.has(id)) continue;
        const bool cumulative = run_.lengths(id).size() == wrong.size();
        run_.set_lengths(id, cumulative ? wrong : std::vector<i32>(wrong.size(), INT_MAX));
      }
      expect_harmless(testing::PrintToString(wrong));
    }
  }
  void expect_random_ones_harmless(u64 rounds) {
    std::mt19937 random(1);
    for (u64 round = 0; round < rounds; ++round) {
      seed_ = round;
      std::string what;
      for (const TensorId id : kLengths) {
        if (!run_.has(id)) continue;
        std::vector<i32> wrong(4);
        for (i32& x : wrong) {
          const u32 bits = static_cast<u32>(random());
          x = static_cast<i32>(bits >> random() % 32);
          if (random() % 4 == 0) x = -x;
        }
        what += tensor_name(id) + testing::PrintToString(wrong);
        run_.set_lengths(id, wrong);
      }
      expect_harmless(what);
    }
  }

 private:
  static constexpr TensorId kLengths[] = {kCuSeqlensQ, kCuSeqlensKv,  kSequsedQ,      kSequsedKv,
                                          kCuSeqlens,  kCuSeqlensNew, kSeqused,       kPageTable,
                                          kKvBatchIdx, kKvBegin,      kRotaryPosition};
  inline static const std::vector<std::vector<i32>> kInvalid = {
      {0, 0, 0, 0},
      {270, 170, 150, 0},
      {-1, -100, 20, 270},
      {0, 1000, 2000, 3000},
      {INT_MAX, INT_MAX, INT_MAX, INT_MAX},
      {INT_MIN, INT_MIN, INT_MIN, INT_MIN},
      {INT_MIN, INT_MAX, INT_MIN, INT_MAX},
      {0, INT_MAX, 0, INT_MAX},
      {1, 2, 3, 4},
      {1 << 30, 1 << 29, -(1 << 30), 1 << 30}};

  // Only a race of two writers, where sequences are not apart.
  void expect_harmless(const std::string& what) {
    try {
      run_.run();
    } catch (const Violation& violation) {
      EXPECT_TRUE(violation.rule == Rule::kGlobalRace && !run_.sequences_are_apart())
          << what << ": " << violation.what();
    }
  }

  u64& seed_;
  KernelRun& run_;
};

}  // namespace fa3::sim
