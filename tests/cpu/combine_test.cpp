// SPDX-License-Identifier: BSD-3-Clause
// combine_test.cpp — fa3_combine on the processor: against its formula in FP64, against one forward
// over all keys, with NaN, Inf and parts without keys, and what is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/kit/combine_call.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using Call = kit::CombineCall;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

kit::Context context_of(fa3_backend backend) {
  fa3_context_options options = kit::default_options();
  options.backend = backend;
  return kit::make_context(options);
}

class Combine : public testing::TestWithParam<fa3_backend> {
 protected:
  const kit::Context context_ = context_of(GetParam());
};

TEST_P(Combine, RandomCalls_FollowTheFormula) {
  kit::expect_property("combine", 400, [&] {
    Call c = *kit::any_combine_call(3000);
    c.make();
    c.run(context_.get());
    c.expect_right();
  });
}

TEST_P(Combine, WrongOutputs_AreNoticed) {
  Call c;
  c.out = FA3_BF16, c.hidden = 0, c.dim = 64;
  c.make();
  c.run(context_.get());
  const auto ok = [&](size_t output) { return verify::compare_combine(c.args())[output].ok; };
  ASSERT_TRUE(ok(0) && ok(1));
  const verify::Index o = c.at_o(1, 2, 0, 3), lse = c.at_lse(1, 2, 0);
  const double value = verify::get(c.o.view, o), log = verify::get(c.lse.view, lse);
  for (const double wrong : {value + 0.1, std::nan(""), -kInfinity}) {
    verify::set(c.o.view, o, wrong);
    EXPECT_FALSE(ok(0)) << wrong;
    EXPECT_TRUE(ok(1));
  }
  verify::set(c.o.view, o, value);
  for (const double wrong : {log + 1e-4, std::nan(""), -kInfinity}) {
    verify::set(c.lse.view, lse, wrong);
    EXPECT_FALSE(ok(1)) << wrong;
    EXPECT_TRUE(ok(0));
  }
}

// One part is what it was, to the bit.
TEST_P(Combine, OnePart_IsKept) {
  Call c;
  c.parts = 1, c.hidden = 0, c.shift = 80;
  c.make();
  c.run(context_.get());
  c.for_each_row([&](int64_t b, int64_t i, int64_t h) {
    EXPECT_EQ(verify::get(c.lse.view, c.at_lse(b, i, h)),
              verify::get(c.lse_parts.view, c.at_lse(b, i, h, 0)));
    for (int64_t col = 0; col < c.dim; ++col)
      EXPECT_EQ(verify::get(c.o.view, c.at_o(b, i, h, col)),
                verify::get(c.o_parts.view, c.at_o(b, i, h, col, 0)));
  });
}

TEST_P(Combine, NanAndInf_ReachTheirRowAlone) {
  for (const double lse : {std::nan(""), kInfinity, 0.0}) {
    Call c, clean;
    for (Call* call : {&c, &clean}) {
      call->hidden = 0;
      call->make();
    }
    verify::set(c.lse_parts.view, c.at_lse(1, 2, 0, 2), lse);
    verify::set(clean.lse_parts.view, c.at_lse(1, 2, 0, 2), 0);
    if (lse == 0) verify::set(c.o_parts.view, c.at_o(1, 2, 0, 3, 2), std::nan(""));
    c.run(context_.get()), clean.run(context_.get());
    c.for_each_row([&](int64_t b, int64_t i, int64_t h) {
      const bool here = b == 1 && i == 2 && h == 0;
      const double got = verify::get(c.lse.view, c.at_lse(b, i, h));
      EXPECT_EQ(std::isnan(got), here && lse != 0) << b << i << h;
      for (int64_t col = 0; col < c.dim; ++col) {
        const double x = verify::get(c.o.view, c.at_o(b, i, h, col));
        const bool reached = here && (lse != 0 || col == 3);
        EXPECT_EQ(std::isnan(x), reached) << b << i << h << col;
        if (reached) continue;
        EXPECT_EQ(x, verify::get(clean.o.view, c.at_o(b, i, h, col)));
      }
    });
  }
}

// Keys in two parts, each a forward of its own, and all of them in one.
TEST_P(Combine, PartsOfKeys_MakeOneForward) {
  constexpr int64_t kKeys = 37, kFirst = 14;
  verify::Config config;
  config.batch = 2, config.seqlen_q = 9, config.seqlen_kv = kKeys;
  config.heads_q = 4, config.heads_kv = 2, config.head_dim_qk = config.head_dim_v = 24;
  const verify::Tensors tensors = verify::make_tensors(config);
  fa3_forward_args all = verify::forward_args(config, tensors);
  Call c;
  c.parts = 2, c.batch = 2, c.seqlen = 9, c.heads = 4, c.dim = 24;
  c.make();
  const auto part_of = [](const fa3_tensor& t, int64_t part) {
    fa3_tensor of = t;
    of.data = static_cast<float*>(t.data) + part * t.stride[0];
    of.rank = t.rank - 1;
    std::copy(t.shape + 1, t.shape + t.rank, of.shape);
    std::copy(t.stride + 1, t.stride + t.rank, of.stride);
    return of;
  };
  for (int64_t part = 0; part < 2; ++part) {
    fa3_forward_args some = all;
    for (fa3_tensor* t : {&some.k, &some.v}) {
      t->shape[1] = part == 0 ? kFirst : kKeys - kFirst;
      t->data = static_cast<float*>(t->data) + part * kFirst * t->stride[1];
    }
    some.o = part_of(c.o_parts.view, part), some.lse = part_of(c.lse_parts.view, part);
    ASSERT_EQ(fa3_forward(context_.get(), &some, nullptr), FA3_OK) << fa3_last_error();
  }
  c.run(context_.get());
  ASSERT_EQ(fa3_forward(context_.get(), &all, nullptr), FA3_OK) << fa3_last_error();
  c.for_each_row([&](int64_t b, int64_t i, int64_t h) {
    EXPECT_NEAR(verify::get(c.lse.view, c.at_lse(b, i, h)), verify::get(all.lse, {b, h, i}), 1e-5);
    for (int64_t col = 0; col < c.dim; ++col)
      EXPECT_NEAR(verify::get(c.o.view, c.at_o(b, i, h, col)), verify::get(all.o, {b, i, h, col}),
                  1e-5);
  });
}

TEST_P(Combine, PlanRunsAndIsExplained) {
  Call c, once;
  c.make(), once.make();
  once.run(context_.get());
  fa3_combine_args a = c.args();
  fa3_plan* made = nullptr;
  ASSERT_EQ(fa3_plan_combine(context_.get(), &a, &made), FA3_OK) << fa3_last_error();
  const kit::Plan plan(made);
  EXPECT_EQ(fa3_plan_workspace_bytes(made), 0u);
  ASSERT_EQ(fa3_plan_run(made, &a, nullptr, 0, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(kit::bytes_of(c.o.view), kit::bytes_of(once.o.view));
  std::string text(4096, '\0');
  ASSERT_EQ(fa3_explain(context_.get(), FA3_OP_COMBINE, &a, text.data(), text.size(), nullptr),
            FA3_OK);
  EXPECT_THAT(text, HasSubstr("\"parts\": 3"));
  EXPECT_THAT(text, HasSubstr("\"stride_part\""));
  a.o_parts.shape[0] = a.lse_parts.shape[0] = 2;
  EXPECT_EQ(fa3_plan_run(made, &a, nullptr, 0, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("parts=2 differs from the plan's 3"));
}

TEST_P(Combine, IsCancelled) {
  fa3_context_options options = kit::default_options(2);
  options.backend = GetParam();
  options.progress = [](void*, int64_t, int64_t) { return 1; };
  Call c;
  c.make();
  const fa3_combine_args a = c.args();
  EXPECT_EQ(fa3_combine(kit::make_context(options).get(), &a, nullptr), FA3_CANCELLED);
}

INSTANTIATE_TEST_SUITE_P(Backends, Combine, testing::Values(FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE),
                         [](const auto& info) {
                           return info.param == FA3_BACKEND_CPU ? "Cpu" : "Reference";
                         });

TEST(CombineThreads, DoNotMatter) {
  Call c, other;
  for (Call* call : {&c, &other}) {
    call->parts = 5, call->seqlen = 300, call->dim = 64;
    call->make();
  }
  c.run(kit::make_context(1).get()), other.run(kit::make_context(7).get());
  EXPECT_EQ(kit::bytes_of(c.o.view), kit::bytes_of(other.o.view));
  EXPECT_EQ(kit::bytes_of(c.lse.view), kit::bytes_of(other.lse.view));
}

struct Refused {
  const char* name;
  void (*change)(Call&, fa3_combine_args&);
  std::vector<std::string> says;
};
void PrintTo(const Refused& r, std::ostream* out) { *out << r.name; }

class CombineRefused : public testing::TestWithParam<Refused> {};

TEST_P(CombineRefused, NamesWhatIsWrong) {
  Call c;
  c.make();
  fa3_combine_args a = c.args();
  GetParam().change(c, a);
  const auto before = c.o.storage->snapshot();
  EXPECT_EQ(fa3_combine(kit::make_context().get(), &a, nullptr), FA3_INVALID_ARGUMENT);
  for (const std::string& text : GetParam().says) EXPECT_THAT(fa3_last_error(), HasSubstr(text));
  EXPECT_EQ(c.o.storage->snapshot(), before) << "something was written";
}

fa3_tensor dense(const fa3_tensor& t, const std::vector<int64_t>& shape) {
  return fa3_dense(t.data, FA3_F32, static_cast<int32_t>(shape.size()), shape.data());
}

const std::vector<Refused> kRefused = {
    {"NoParts", [](Call&, fa3_combine_args& a) { a.o_parts = {}; }, {"combine: o_parts is absent"}},
    {"NoLse", [](Call&, fa3_combine_args& a) { a.lse_parts = {}; }, {"lse_parts is absent"}},
    {"NoOutput", [](Call&, fa3_combine_args& a) { a.o = {}; }, {"o is absent"}},
    {"PartsOfRank3",
     [](Call&, fa3_combine_args& a) {
       a.o_parts = dense(a.o_parts, {3, 2, 5});
     },
     {"o_parts.rank=3", "rank 5 (parts, batch, seqlen, heads, head_dim)",
      "rank 4 (parts, total, heads, head_dim)"}},
    {"LseOfPackedRows",
     [](Call&, fa3_combine_args& a) { a.lse_parts.rank = 3; },
     {"lse_parts.rank=3", "(parts, batch, heads, seqlen)"}},
    {"OutputOfPackedRows",
     [](Call&, fa3_combine_args& a) {
       a.o = dense(a.o, {5, 3, 16});
     },
     {"o.rank=3", "(batch, seqlen, heads, head_dim)", "as o_parts says"}},
    {"FewerLse",
     [](Call&, fa3_combine_args& a) { a.lse_parts.shape[0] = 2; },
     {"lse_parts.shape[0]=2", "parts=3"}},
    {"LseByRows",
     [](Call&, fa3_combine_args& a) { std::swap(a.lse_parts.shape[2], a.lse_parts.shape[3]); },
     {"lse_parts.shape[2]=5", "heads=3"}},
    {"OutputOfAnotherShape",
     [](Call&, fa3_combine_args& a) { a.o.shape[1] = 4; },
     {"o.shape[1]=4", "seqlen=5"}},
    {"LseOfAnotherShape",
     [](Call&, fa3_combine_args& a) { a.lse.shape[0] = 1; },
     {"lse.shape[0]=1", "batch=2"}},
    {"TooManyColumns",
     [](Call&, fa3_combine_args& a) {
       a.o_parts = dense(a.o_parts, {3, 2, 5, 3, 513});
     },
     {"head_dim=513", "1…512"}},
    {"PartsOf8Bits",
     [](Call&, fa3_combine_args& a) { a.o_parts.dtype = FA3_F8_E4M3; },
     {"o_parts.dtype=f8_e4m3", "f32, f16 or bf16"}},
    {"LseOf16Bits",
     [](Call&, fa3_combine_args& a) { a.lse_parts.dtype = FA3_BF16; },
     {"lse_parts.dtype=bf16", "need f32"}},
    {"OutputOfF64",
     [](Call&, fa3_combine_args& a) { a.o.dtype = FA3_F64; },
     {"o.dtype=f64", "f32, f16 or bf16"}},
    {"ColumnsApart",
     [](Call&, fa3_combine_args& a) { a.o_parts.stride[4] = 2; },
     {"o_parts.stride[4]=2", "not contiguous"}},
    {"NegativeStride",
     [](Call&, fa3_combine_args& a) { a.lse_parts.stride[3] = -1; },
     {"lse_parts.stride[3]=-1", "negative"}},
    {"OutputExpanded",
     [](Call&, fa3_combine_args& a) { a.lse.stride[2] = 0; },
     {"lse.stride[2]=0", "onto each other"}},
    {"NoAddress",
     [](Call&, fa3_combine_args& a) { a.o_parts.data = nullptr; },
     {"o_parts.data is NULL"}},
    {"OutputOverAPart",
     [](Call&, fa3_combine_args& a) { a.o.data = a.o_parts.data; },
     {"o (bytes", "shares elements with o_parts"}},
    {"LseOverLse",
     [](Call&, fa3_combine_args& a) { a.lse.data = a.lse_parts.data; },
     {"shares elements with lse", "lse_parts"}},
    {"StructOfNoRelease",
     [](Call&, fa3_combine_args& a) { a.struct_size = 100; },
     {"combine: args: struct_size=100"}},
};
INSTANTIATE_TEST_SUITE_P(Calls, CombineRefused, testing::ValuesIn(kRefused),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3
