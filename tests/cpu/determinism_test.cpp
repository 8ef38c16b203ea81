// SPDX-License-Identifier: BSD-3-Clause
// determinism_test.cpp — the same bits for any number of threads, on every run; and every
// instruction set is right.
#include "tests/kit/context.h"
#include "tests/kit/run.h"

namespace fa3 {
namespace {

using verify::Config;

// Problems that the planner cuts in different ways, in each type; under sanitizers each in one
// type.
std::vector<Config> problems() {
  std::vector<Config> kinds;
  Config c;
  c.backward = true;
  c.dlse = true;
  c.mask = FA3_MASK_CAUSAL;
  c.head_dim_qk = c.head_dim_v = 32;
  c.batch = 2;  // blocks of many heads
  c.heads_q = 6;
  c.heads_kv = 2;
  c.seqlen_q = c.seqlen_kv = 110;
  kinds.push_back(c);
  c.batch = c.heads_q = c.heads_kv = 1;  // one head: several chunks of keys add to one dQ
  c.seqlen_q = 200;
  c.seqlen_kv = 1300;
  kinds.push_back(c);
  c.heads_q = 4;  // decode, split along the keys
  c.seqlen_q = 2;
  c.seqlen_kv = 5000;
  c.backward = false;
  kinds.push_back(c);
  c.backward = true;  // ragged
  c.heads_q = 4;
  c.heads_kv = 2;
  c.varlen_q = {1, 0, 90, 33};
  c.varlen_kv = {700, 5, 110, 33};
  kinds.push_back(c);
  c.mask = FA3_MASK_WINDOW;
  c.left = 50;
  c.right = 9;
  kinds.push_back(c);
  c.varlen_q = c.varlen_kv = {};  // documents: chunks of keys pass blocks of queries by
  c.mask = FA3_MASK_FULL;
  c.left = c.right = 0;
  c.seqlen_q = 300;
  c.seqlen_kv = 1200;
  c.sequence_ids = 7;
  c.alibi = true;
  kinds.push_back(c);
  c.scattered_ids = true;
  kinds.push_back(c);
  c.sequence_ids = 5000;  // most queries see no key, and most chunks none of a block's
  kinds.push_back(c);

  constexpr int32_t kTypes[] = {FA3_F32, FA3_F16, FA3_BF16};
  std::vector<Config> all;
  for (size_t i = 0; i < kinds.size(); ++i)
    for (size_t t = 0; t < 3; ++t) {
      if (kit::reduction() > 1 && t != i % 3) continue;
      kinds[i].dtype = kTypes[t];
      all.push_back(kinds[i]);
    }
  return all;
}

TEST(CpuDeterminism, ThreadCounts_ChangeNoBit) {
  for (const Config& c : problems()) {
    const kit::OutputBits one = kit::output_bits(c, kit::make_context(1).get());
    for (const int threads : {2, 3, 7})
      EXPECT_TRUE(kit::output_bits(c, kit::make_context(threads).get()) == one)
          << threads << " threads: " << verify::replay_command(c);
  }
}

TEST(CpuDeterminism, Repeated_ChangesNoBit) {
  const kit::Context context = kit::make_context();
  for (const Config& c : problems()) {
    const kit::OutputBits first = kit::output_bits(c, context.get());
    for (int run = 0; run < 3; ++run)
      EXPECT_TRUE(kit::output_bits(c, context.get()) == first) << verify::replay_command(c);
  }
}

TEST(CpuDeterminism, WorkspaceContent_ChangesNoBit) {
  const kit::Context context = kit::make_context();
  for (const Config& c : problems()) {
    const kit::OutputBits first = kit::output_bits(c, context.get(), std::byte{0});
    for (const int garbage : {0x7f, 0xff, 0x3c})
      EXPECT_TRUE(kit::output_bits(c, context.get(), static_cast<std::byte>(garbage)) == first)
          << verify::replay_command(c);
  }
}

TEST(CpuDeterminism, Layout_ChangesNoBit) {
  const kit::Context context = kit::make_context();
  Config c;
  c.backward = true;
  c.batch = 2;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.seqlen_q = c.seqlen_kv = 130;
  c.head_dim_qk = c.head_dim_v = 40;
  for (const int32_t dtype : {FA3_F32, FA3_F16, FA3_BF16}) {
    c.dtype = dtype;
    c.layout = verify::Layout::kDense;
    const kit::OutputBits dense = kit::output_bits(c, context.get());
    for (const auto layout : {verify::Layout::kHeadsFirst, verify::Layout::kSeqFirst,
                              verify::Layout::kPadded, verify::Layout::kInterleaved}) {
      c.layout = layout;
      EXPECT_TRUE(kit::output_bits(c, context.get()) == dense) << verify::layout_name(layout);
    }
  }
}

// ---- Instruction sets ------------------------------------------------------------------------

class CpuInstructionSet : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const std::string& name : kit::instruction_sets()) here_ = here_ || name == GetParam();
    if (!here_) GTEST_SKIP() << "not on this processor, or not in this build";
  }
  bool here_ = false;
};

TEST_P(CpuInstructionSet, Problems_MatchReference) {
  const kit::ScopedEnv simd("FA3_SIMD", GetParam());
  const kit::Context context = kit::make_context();
  for (const Config& c : problems()) kit::expect_right(c, context.get());
  for (const int64_t d : {1, 3, 4, 5, 7, 8, 9, 15, 17, 31, 33, 63, 65, 100, 128, 200}) {
    Config c;
    c.backward = true;
    c.heads_q = 2;
    c.seqlen_q = d + 3;
    c.seqlen_kv = 2 * d + 1;
    c.head_dim_qk = d;
    c.head_dim_v = d % 3 == 0 ? 2 * d : d;
    c.dtype = d % 2 == 0 ? FA3_BF16 : d % 4 == 1 ? FA3_F32 : FA3_F16;
    c.softcap = d % 5 == 0 ? 3 : 0;
    c.mask = d % 4 == 3 ? FA3_MASK_CAUSAL : FA3_MASK_FULL;
    kit::expect_right(c, context.get());
  }
}

TEST_P(CpuInstructionSet, ThreadCounts_ChangeNoBit) {
  const kit::ScopedEnv simd("FA3_SIMD", GetParam());
  for (const Config& c : problems())
    EXPECT_TRUE(kit::output_bits(c, kit::make_context(1).get()) ==
                kit::output_bits(c, kit::make_context(3).get()))
        << verify::replay_command(c);
}

INSTANTIATE_TEST_SUITE_P(Each, CpuInstructionSet,
                         ::testing::Values("scalar", "sse4", "neon", "avx2", "avx3", "avx3_bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fa3
