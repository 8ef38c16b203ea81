// SPDX-License-Identifier: BSD-3-Clause
// peers_test.cpp — bugs that other attention libraries shipped, each as a test. The links name the
// reports.
#include <limits>

#include "tests/kit/context.h"
#include "tests/kit/run.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Tensors;

class CpuPeers : public ::testing::TestWithParam<int32_t> {
 protected:
  Config config() const {
    Config c;
    c.dtype = GetParam();
    c.backward = true;
    c.heads_q = 2;
    c.head_dim_qk = c.head_dim_v = 64;
    return c;
  }
};

// Scores near −level for every key: q about 1 in each element, k about −level/√head_dim.
void lower_scores(const Tensors& t, double level) {
  verify::Random random(1);
  verify::generate(t.q.view, [&] { return 1 + random.normal() / 64; });
  verify::generate(t.k.view, [&] { return -level / 8 + random.normal() / 16; });
}

void expect_right_after_lowering(const Config& c, double level) {
  const kit::Context context = kit::make_context();
  const Tensors t = verify::make_tensors(c);
  lower_scores(t, level);
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_LT(verify::get(forward.lse, {0, 0, 0}), -88.7);
  for (const auto& r : verify::compare_forward(forward)) EXPECT_TRUE(r.ok) << verify::to_text(r);
  const fa3_backward_args backward = verify::backward_args(c, t);
  ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
  for (const auto& r : verify::compare_backward(backward)) EXPECT_TRUE(r.ok) << verify::to_text(r);
}

// pytorch/pytorch #196678: NaN dQ when seqlen_kv % 128 == 64 and LSE < −88.7: the padded tail of a
// key tile scored 0 instead of −inf, and exp(0 − LSE) overflows.
TEST_P(CpuPeers, PaddedTailScoresZero_LseBelowMinus88) {
  for (const int64_t kv : {64, 63, 65, 192, 193, 577}) {
    Config c = config();
    c.seqlen_q = 33;
    c.seqlen_kv = kv;
    c.mask = kv % 2 == 0 ? FA3_MASK_FULL : FA3_MASK_CAUSAL;
    expect_right_after_lowering(c, 120);
    expect_right_after_lowering(c, 1000);
  }
}

// Dao-AILab/flash-attention #1254, #2761: the backward hung on sequences of length zero.
TEST_P(CpuPeers, ZeroLengthSequences_BackwardReturns) {
  Config c = config();
  c.mask = FA3_MASK_CAUSAL;
  c.varlen_q = {0, 70, 0, 0, 3, 0};
  c.varlen_kv = {5, 0, 0, 700, 3, 0};
  kit::expect_right(c);
}

// #1596, #1893: the deterministic backward was not, with windows and ragged batches.
TEST_P(CpuPeers, WindowedRaggedBackward_IsDeterministic) {
  Config c = config();
  c.mask = FA3_MASK_WINDOW;
  c.left = 100;
  c.right = 30;
  c.varlen_q = {300, 700, 40};
  c.varlen_kv = {500, 700, 90};
  const kit::OutputBits first = kit::output_bits(c, kit::make_context(2).get());
  for (const int threads : {1, 2, 5, 2})
    EXPECT_TRUE(kit::output_bits(c, kit::make_context(threads).get()) == first);
}

// flash_api.cpp and VARLEN_PREPROCESS_TILE_BUG: allocation and kernel disagreed on the tile, so
// ragged tails were written beyond the buffers. output_bits guards the workspace, the check guards
// the tensors.
TEST_P(CpuPeers, TileSizesOfHostAndKernel_Agree) {
  for (const int64_t tail : {1, 5, 7, 63, 65, 143, 145, 191, 193}) {
    Config c = config();
    c.head_dim_qk = c.head_dim_v = 33;
    c.varlen_q = {tail, 1, 2 * tail};
    c.varlen_kv = {2 * tail, 3, tail};
    kit::output_bits(c, kit::make_context(3).get());
    kit::expect_right(c);
  }
}

// #2063: a workspace was freed while in use, hidden by a caching allocator. The context keeps one
// workspace for fa3_forward and fa3_backward: it must serve problems that grow and shrink.
TEST_P(CpuPeers, KeptWorkspace_ServesChangingSizes) {
  const kit::Context context = kit::make_context();
  for (const int64_t n : {10, 250, 3, 400, 64, 400}) {
    Config c = config();
    c.head_dim_qk = c.head_dim_v = 32;
    c.seqlen_q = n;
    c.seqlen_kv = n / 2 + 1;
    c.heads_q = n % 4 == 0 ? 4 : 1;
    kit::expect_right(c, context.get());
  }
}

// #2388: strides of LSE were hard-coded. Padded puts unused elements between its rows, dense and
// varlen.
TEST_P(CpuPeers, LseStrides_AreHonoured) {
  Config c = config();
  c.layout = verify::Layout::kPadded;
  c.dlse = true;
  c.batch = 2;
  c.seqlen_q = 37;
  c.seqlen_kv = 50;
  kit::expect_right(c);
  c.varlen_q = {20, 11};
  c.varlen_kv = {9, 30};
  c.spare_q = 4;
  kit::expect_right(c);
}

// Commit 1a58058a: counters were not reset when the metadata was used again.
TEST_P(CpuPeers, OnePlanAndWorkspace_RunAgainAndAgain) {
  const kit::Context context = kit::make_context(3);
  Config c = config();
  c.seqlen_q = 150;
  c.seqlen_kv = 1300;
  c.mask = FA3_MASK_CAUSAL;
  const kit::OutputBits expected = kit::output_bits(c, context.get());
  const Tensors t = verify::make_tensors(c);
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  const fa3_backward_args args = verify::backward_args(c, t);
  fa3_plan* raw = nullptr;
  ASSERT_EQ(fa3_plan_backward(context.get(), &args, &raw), FA3_OK) << fa3_last_error();
  const kit::Plan plan(raw);
  std::vector<std::byte> workspace(fa3_plan_workspace_bytes(plan.get()), std::byte{0xff});
  for (int run = 0; run < 4; ++run) {
    for (const fa3_tensor* out : {&args.dq, &args.dk, &args.dv})
      verify::fill(*out, std::numeric_limits<double>::quiet_NaN());
    ASSERT_EQ(fa3_plan_run(plan.get(), &args, workspace.data(), workspace.size(), nullptr), FA3_OK)
        << fa3_last_error();
    EXPECT_EQ(kit::bytes_of(args.dq), expected.at("dq")) << "run " << run;
    EXPECT_EQ(kit::bytes_of(args.dk), expected.at("dk")) << "run " << run;
    EXPECT_EQ(kit::bytes_of(args.dv), expected.at("dv")) << "run " << run;
  }
}

// #2611: the stride of dO was taken from another tensor. Here q, o and dO all lie differently in
// memory.
TEST_P(CpuPeers, DoutStrides_AreItsOwn) {
  Config c = config();
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 45;
  const kit::Context context = kit::make_context();
  Tensors t = verify::make_tensors(c);
  for (const bool varlen : {false, true}) {
    if (varlen) {
      c.varlen_q = c.varlen_kv = {45, 30};
      t = verify::make_tensors(c);
    }
    Config other = c;
    other.layout = verify::Layout::kHeadsFirst;
    const Tensors heads_first = verify::make_tensors(other);
    other.layout = verify::Layout::kPadded;
    const Tensors padded = verify::make_tensors(other);
    t.o = padded.o;
    t.dout = heads_first.dout;
    t.dk = padded.dk;
    t.dv = heads_first.dv;
    t.k = heads_first.k;
    const fa3_forward_args forward = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
    const fa3_backward_args args = verify::backward_args(c, t);
    ASSERT_EQ(fa3_backward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
    for (const auto& r : verify::compare_backward(args)) EXPECT_TRUE(r.ok) << verify::to_text(r);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuPeers, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& info) { return verify::dtype_text(info.param); });

}  // namespace
}  // namespace fa3
