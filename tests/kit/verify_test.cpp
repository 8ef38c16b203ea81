// SPDX-License-Identifier: BSD-3-Clause
// verify_test.cpp — tests of the checker: what tools/verify must accept, and what it must not.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "tests/kit/context.h"
#include "tools/verify/check.h"
#include "tools/verify/fields.h"

namespace fa3::verify {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- Elements --------------------------------------------------------------------------------

TEST(VerifyElements, EveryPattern_DecodesAndEncodes) {
  for (const int32_t dtype : {FA3_F16, FA3_BF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto in = static_cast<uint16_t>(bits);
      const double value = decode(dtype, &in);
      uint16_t out = 0;
      encode(dtype, value, &out);
      if (std::isnan(value))
        ASSERT_TRUE(std::isnan(decode(dtype, &out))) << bits;
      else
        ASSERT_EQ(out, in) << dtype_text(dtype);
    }
  }
}

TEST(VerifyElements, Rounding_TiesToEvenAndOverflowsToInf) {
  EXPECT_EQ(round_to(FA3_BF16, 1 + 0x1p-8), 1);
  EXPECT_EQ(round_to(FA3_BF16, 1 + 0x3p-8), 1 + 0x1p-6);
  EXPECT_EQ(round_to(FA3_BF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(round_to(FA3_F16, -1 - 0x1p-11), -1);
  EXPECT_EQ(round_to(FA3_F16, 65519), 65504);
  EXPECT_EQ(round_to(FA3_F16, 65520), kInf);
  EXPECT_EQ(round_to(FA3_F16, 0x1p-25), 0);
  EXPECT_EQ(round_to(FA3_F16, 0x3p-25), 0x1p-23);
  EXPECT_EQ(round_to(FA3_F32, 1 + 0x1p-24), 1);
  EXPECT_TRUE(std::isnan(round_to(FA3_F16, kNan)));
}

// ---- Tensors ---------------------------------------------------------------------------------

TEST(VerifyTensor, Guards_NoticeAByteBesideTheElements) {
  const Tensor t = make_tensor(FA3_F32, {2, 3, 4}, {{1, 0, 2}, 2});
  EXPECT_EQ(t.view.stride[0], 6);
  EXPECT_EQ(t.view.stride[1], 12);
  fill(t.view, 1);
  EXPECT_TRUE(t.storage->guards_intact());
#if !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FA3_KIT_ASAN
#endif
#endif
#ifndef FA3_KIT_ASAN  // there the write itself is an error
  static_cast<float*>(t.view.data)[4] = 1;
  EXPECT_FALSE(t.storage->guards_intact());
#endif
#endif
}

TEST(VerifyTensor, Interleaved_PartsShareOneTensor) {
  const std::vector<Tensor> parts = make_interleaved(FA3_F16, {2, 3, 0, 8}, 2, {4, 1, 1});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].view.stride[1], 6 * 8);
  set(parts[2].view, {1, 2, 0, 7}, 5);
  EXPECT_EQ(get(parts[2].view, {1, 2, 0, 7}), 5);
  EXPECT_TRUE(std::isnan(get(parts[1].view, {1, 2, 0, 7})));
}

TEST(VerifyProblem, SameSeed_SameValuesInEveryLayout) {
  Config dense{.batch = 2, .heads_q = 3, .heads_kv = 3, .seqlen_q = 4, .seqlen_kv = 4};
  dense.seed = 7;
  for (const Layout layout :
       {Layout::kHeadsFirst, Layout::kSeqFirst, Layout::kPadded, Layout::kInterleaved}) {
    Config other = dense;
    other.layout = layout;
    EXPECT_EQ(kit::bytes_of(make_tensors(dense).k.view), kit::bytes_of(make_tensors(other).k.view))
        << layout_name(layout);
  }
  Config seeded = dense;
  seeded.seed = 8;
  EXPECT_NE(kit::bytes_of(make_tensors(dense).q.view), kit::bytes_of(make_tensors(seeded).q.view));
}

TEST(VerifyProblem, Replay_NamesTheSizesAndWhatDiffersFromTheDefaults) {
  Config c;
  EXPECT_EQ(replay_command(c),
            "fa3 check --batch 1 --heads-q 1 --heads-kv 1 --seqlen-q 1 --seqlen-kv 1 "
            "--head-dim 64 --head-dim-v 64");
  c.backward = true;
  c.dtype = FA3_BF16;
  c.varlen_q = {3, 0, 5};
  c.mask = FA3_MASK_WINDOW;
  c.left = -1;
  c.right = 4;
  c.softcap = 1.5;
  c.seed = 42;
  EXPECT_EQ(replay_command(c, "cpu"),
            "fa3 check --backward --dtype bf16 --heads-q 1 --heads-kv 1 --seqlen-kv 1 "
            "--head-dim 64 --head-dim-v 64 --varlen-q 3,0,5 --window -1,4 --softcap 1.5 --seed 42 "
            "--backend cpu");
}

TEST(VerifyProblem, Contradictions_AreNamed) {
  Config c;
  c.varlen_q = {1, 2};
  c.varlen_kv = {1};
  EXPECT_NE(contradiction(c), "");
  EXPECT_THROW(make_tensors(c), std::invalid_argument);
}

TEST(VerifyProblem, OwnPages_AreOfOneSequence) {
  Config c{.batch = 8, .seqlen_kv = 100};
  c.page_size = 4;
  const auto pages_of_all = [&] {
    const Tensors t = make_tensors(c);
    const auto* const table = static_cast<const int32_t*>(t.page_table.view.data);
    std::set<int32_t> pages;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t i = 0; i < 25; ++i) pages.insert(table[b * t.page_table.view.stride[0] + i]);
    return std::ssize(pages);
  };
  EXPECT_LT(pages_of_all(), 8 * 25);
  c.own_pages = true;
  EXPECT_EQ(pages_of_all(), 8 * 25);
}

// A tensor that the library gains must not be left out of problems without a word.
TEST(VerifyProblem, EveryTensorOfACall_IsMadeOrCanBeAskedFor) {
  const Tensors t;
  for (const bool backward : {false, true}) {
    for (const fa3_field& f : fields(backward ? FA3_OP_BACKWARD : FA3_OP_FORWARD)) {
      const bool of_another_operation = std::string(f.name) == "v_image";  // a quantisation
      if (!is_tensor(f) || t.find(f.name) != nullptr || of_another_operation) continue;
      Config c;
      c.backward = backward;
      const std::string name = f.name;
      c.with = {gradient_of(name.substr(1)) != nullptr ? name.substr(1) : name};
      EXPECT_EQ(contradiction(c), "") << f.name;
    }
  }
}

TEST(VerifyProblem, With_DrawsInTheShapeOfTheField) {
  Config c{.backward = true, .heads_q = 3, .varlen_q = {4, 2}, .varlen_kv = {1, 5}};
  c.with = {"alibi_slopes", "dlse"};
  const Tensors t = make_tensors(c);
  const fa3_backward_args args = backward_args(c, t);
  EXPECT_EQ(args.alibi_slopes.rank, 1);
  EXPECT_EQ(args.alibi_slopes.shape[0], 3);
  EXPECT_EQ(args.dlse.rank, 2);
  EXPECT_EQ(args.dlse.shape[1], 6);
  EXPECT_NE(replay_command(c).find("--with alibi_slopes --with dlse"), std::string::npos);
  c.with = {"k_scale"};
  EXPECT_NE(contradiction(c).find("k_scale"), std::string::npos);
}

TEST(VerifyProblem, Numbers_ReachTheStructsThatHaveThem) {
  Config c{.backward = true};
  c.numbers = {{"num_splits", 3}, {"sm_margin", 0}};
  const Tensors t = make_tensors(c);
  EXPECT_EQ(forward_args(c, t).num_splits, 3);
  EXPECT_EQ(forward_args(c, t).sm_margin, 0);
  EXPECT_EQ(backward_args(c, t).softcap, 0);
  EXPECT_NE(replay_command(c).find("--num-splits 3"), std::string::npos);
  EXPECT_EQ(replay_command(c).find("--sm-margin"), std::string::npos);
}

// ---- Comparison ------------------------------------------------------------------------------

// A forward problem that the naive computation itself has answered, exactly as it would be stored.
struct Answered {
  Config config;
  Tensors tensors;
  fa3_forward_args args;
  NaiveForward naive;

  explicit Answered(int32_t dtype) {
    config = {.dtype = dtype, .batch = 2, .heads_q = 2, .heads_kv = 1};
    config.seqlen_q = 37;
    config.seqlen_kv = 1024;
    config.mask = FA3_MASK_CAUSAL;
    config.seed = 3;
    tensors = make_tensors(config);
    args = forward_args(config, tensors);
    naive = naive_forward(args);
    copy(naive.o.value.view, args.o);
    copy(naive.lse.value.view, args.lse);
  }

  static void copy(const fa3_tensor& from, const fa3_tensor& to) {
    for_each_row(from, [&](const Index& at, void*) {
      Index i = at;
      for (i[from.rank - 1] = 0; i[from.rank - 1] < from.shape[from.rank - 1]; ++i[from.rank - 1])
        set(to, i, get(from, i));
    });
  }

  OutputResult judge(const char* name) const {
    for (const OutputResult& r : compare_forward(args))
      if (r.name == name) return r;
    return {.name = "missing", .ok = false};
  }
};

class VerifyCompare : public ::testing::TestWithParam<int32_t> {};

TEST_P(VerifyCompare, NaiveAnswer_IsAccepted) {
  const Answered x(GetParam());
  EXPECT_TRUE(x.judge("o").ok) << to_text(x.judge("o"));
  EXPECT_TRUE(x.judge("lse").ok) << to_text(x.judge("lse"));
}

TEST_P(VerifyCompare, FlippedElement_IsRejectedAndNamed) {
  const Answered x(GetParam());
  const Index at{1, 30, 1, 17};
  set(x.args.o, at, -get(x.args.o, at));
  const OutputResult r = x.judge("o");
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.where, "[1, 30, 1, 17]");
  EXPECT_EQ(r.ours, get(x.args.o, at));
  EXPECT_NEAR(r.reference, -r.ours, 0.02);
  EXPECT_GT(r.max_err, r.bound);
}

TEST_P(VerifyCompare, NanInfOrUnwritten_IsRejected) {
  const Index at{0, 5, 0, 63};
  for (const double bad : {kNan, kInf, -kInf}) {
    const Answered x(GetParam());
    set(x.args.o, at, bad);
    const OutputResult r = x.judge("o");
    EXPECT_FALSE(r.ok);
    EXPECT_EQ(r.where, "[0, 5, 0, 63]");
  }
  const Answered x(GetParam());
  fill(x.args.lse, kNan);
  EXPECT_FALSE(x.judge("lse").ok);
}

TEST_P(VerifyCompare, WrongLse_IsRejected) {
  const Answered x(GetParam());
  const Index at{1, 1, 36};
  const double right = get(x.args.lse, at);
  for (const double wrong : {right + 2e-4, right - 2e-4, right / std::log(2.0), -kInf}) {
    set(x.args.lse, at, wrong);
    const OutputResult r = x.judge("lse");
    EXPECT_FALSE(r.ok) << wrong;
    EXPECT_EQ(r.where, "[1, 1, 36]");
  }
}

// Errors three times the naive ones, everywhere: some row must show it, though each row's bound has
// a floor as well.
TEST_P(VerifyCompare, ThreeTimesTheNaiveError_IsRejected) {
  const Answered x(GetParam());
  Config exact_config = x.config;
  exact_config.out_dtype = FA3_F32;
  const Tensors exact = make_tensors(exact_config);
  const fa3_forward_args exact_args = forward_args(exact_config, exact);
  fa3_context_options options = kit::default_options();
  options.backend = FA3_BACKEND_REFERENCE;
  const kit::Context reference = kit::make_context(options);
  ASSERT_EQ(fa3_forward(reference.get(), &exact_args, nullptr), FA3_OK) << fa3_last_error();
  for_each_row(x.args.o, [&](const Index& row, void*) {
    Index i = row;
    for (i[3] = 0; i[3] < 64; ++i[3]) {
      const double fp64 = get(exact_args.o, i);
      set(x.args.o, i, fp64 + 3 * (get(x.args.o, i) - fp64));
    }
  });
  EXPECT_FALSE(x.judge("o").ok) << to_text(x.judge("o"));
}

TEST_P(VerifyCompare, EmptyRow_MustBeExact) {
  Config c{.dtype = GetParam(), .seqlen_q = 3, .seqlen_kv = 2};
  c.mask = FA3_MASK_CAUSAL;  // query 0 sees nothing
  const Tensors t = make_tensors(c);
  const fa3_forward_args args = forward_args(c, t);
  const NaiveForward naive = naive_forward(args);
  Answered::copy(naive.o.value.view, args.o);
  Answered::copy(naive.lse.value.view, args.lse);
  for (const OutputResult& r : compare_forward(args)) EXPECT_TRUE(r.ok) << to_text(r);
  set(args.o, {0, 0, 0, 3}, min_normal(GetParam()));
  set(args.lse, {0, 0, 0}, -100);
  for (const OutputResult& r : compare_forward(args)) EXPECT_FALSE(r.ok) << to_text(r);
}

TEST_P(VerifyCompare, Backward_FlipsAndNansAreRejected) {
  Config c{.backward = true, .dtype = GetParam(), .heads_q = 2, .seqlen_q = 20, .seqlen_kv = 33};
  c.dlse = true;
  const Tensors t = make_tensors(c);
  const fa3_backward_args args = backward_args(c, t);
  const NaiveBackward naive = naive_backward(args);
  const auto answer = [&] {
    Answered::copy(naive.dq.value.view, args.dq);
    Answered::copy(naive.dk.value.view, args.dk);
    Answered::copy(naive.dv.value.view, args.dv);
  };
  answer();
  for (const OutputResult& r : compare_backward(args)) EXPECT_TRUE(r.ok) << to_text(r);
  for (const fa3_tensor* wrong : {&args.dq, &args.dk, &args.dv}) {
    const Index at{0, 7, 0, 5};
    for (const double value : {-get(*wrong, at), kNan, kInf}) {
      answer();
      set(*wrong, at, value);
      int rejected = 0;
      for (const OutputResult& r : compare_backward(args)) rejected += !r.ok;
      EXPECT_EQ(rejected, 1) << value;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, VerifyCompare, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& info) { return dtype_text(info.param); });

// Scores of 1e24: first-order errors overflow FP32. An exact answer must pass, NaN must not.
TEST_P(VerifyCompare, SpreadThatOverflows_IsNoBound) {
  Config c{.dtype = GetParam(), .heads_q = 2, .heads_kv = 2, .seqlen_q = 17, .seqlen_kv = 17};
  c.softmax_scale = 1e24;
  c.out_dtype = FA3_F32;
  const Tensors t = make_tensors(c);
  const fa3_forward_args args = forward_args(c, t);
  fa3_context_options options = kit::default_options();
  options.backend = FA3_BACKEND_REFERENCE;
  ASSERT_EQ(fa3_forward(kit::make_context(options).get(), &args, nullptr), FA3_OK);
  const Index at{0, 7, 1, 0};
  set(args.o, at, get(args.o, at) * (1 + 0x1p-20));
  const OutputResult near = compare_forward(args)[0];
  EXPECT_TRUE(near.ok) << to_text(near);
  EXPECT_TRUE(near.blind());
  for (const double wrong : {kNan, -kInf * get(args.o, at)}) {
    set(args.o, at, wrong);
    const OutputResult r = compare_forward(args)[0];
    EXPECT_FALSE(r.ok) << wrong;
    EXPECT_EQ(r.where, "[0, 7, 1, 0]");
  }
}

// Products beyond FP32 in every row: any answer passes, and the check is blind.
TEST(VerifyCompareInf, ScoresThatOverflow_MayBeAnything) {
  Config c{.seqlen_q = 17, .seqlen_kv = 17};
  c.magnitude = 5e37;  // no q overflows
  const Tensors t = make_tensors(c);
  const fa3_forward_args args = forward_args(c, t);
  for (const double answer : {kNan, kInf, 0.0}) {
    fill(args.o, answer);
    fill(args.lse, answer);
    for (const OutputResult& r : compare_forward(args)) {
      EXPECT_TRUE(r.ok) << to_text(r);
      EXPECT_TRUE(r.blind());
    }
  }
}

TEST(VerifyCompareInf, BoundBeyondTheType_AllowsInfOfEitherSign) {
  const Tensor ours = make_tensor(FA3_F16, {1, 2}), fp64 = make_tensor(FA3_F32, {1, 2});
  const Estimate naive{make_tensor(FA3_F32, {1, 2}), make_tensor(FA3_F32, {1, 2})};
  for (const Tensor& t : {ours, fp64, naive.value}) fill(t.view, 3);
  for (const auto& [spread, allowed] : {std::pair(1e5, true), std::pair(1e4, false)}) {
    fill(naive.spread.view, spread);
    for (const double answer : {kInf, -kInf}) {
      set(ours.view, {0, 1}, answer);
      EXPECT_EQ(compare_output("dq", ours.view, fp64.view, naive).ok, allowed) << answer;
    }
    set(ours.view, {0, 1}, kNan);
    EXPECT_FALSE(compare_output("dq", ours.view, fp64.view, naive).ok);
  }
}

TEST(VerifyCompareNan, ReferenceNan_MustBeThere) {
  Config c{.seqlen_q = 2, .seqlen_kv = 2};
  const Tensors t = make_tensors(c);
  const fa3_forward_args args = forward_args(c, t);
  set(args.v, {0, 1, 0, 9}, kNan);
  const NaiveForward naive = naive_forward(args);
  Answered::copy(naive.o.value.view, args.o);
  Answered::copy(naive.lse.value.view, args.lse);
  EXPECT_TRUE(compare_forward(args)[0].ok);
  set(args.o, {0, 0, 0, 9}, 0.5);
  const OutputResult r = compare_forward(args)[0];
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.where, "[0, 0, 0, 9]");
}

// Memory may run out in any of the threads that share the heads.
TEST(VerifyNaive, ExceptionInAThread_ReachesTheCaller) {
  Config c{.batch = 16, .heads_q = 4, .heads_kv = 4};
  c.backward = true;
  const Tensors t = make_tensors(c);
  fa3_forward_args forward = forward_args(c, t);
  fa3_backward_args backward = backward_args(c, t);
  forward.k.shape[1] = backward.k.shape[1] = int64_t{1} << 55;  // rows that no vector can hold
  EXPECT_THROW(naive_forward(forward), std::length_error);
  EXPECT_THROW(naive_backward(backward), std::length_error);
}

TEST(VerifyCheck, Report_SaysHowToRepeat) {
  Config c{.heads_q = 3, .heads_kv = 2};
  c.seed = 5;
  const Report report = check(c, kit::make_context().get());
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.status, FA3_INVALID_ARGUMENT);
  for (const char* part : {"fa3 check ", " --heads-q 3 --heads-kv 2 ", " --seed 5"})
    EXPECT_NE(report.text.find(part), std::string::npos) << part << " in " << report.text;
}

}  // namespace
}  // namespace fa3::verify
