// SPDX-License-Identifier: BSD-3-Clause
// quantize_test.cpp — fa3_quantize on the processor: against the FP64 reference, by its laws (a
// rotation keeps q·k, means come back), with NaN, Inf and zeros, and what is refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/kit/quantize_call.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using Call = kit::QuantizeCall;

rc::Gen<Call> any_call() {
  return rc::gen::exec([] {
    Call c;
    c.batch = *rc::gen::inRange<int64_t>(1, 4);
    c.heads = *rc::gen::inRange<int64_t>(1, 4);
    c.seqlen = *rc::gen::weightedOneOf<int64_t>(
        {{4, rc::gen::inRange<int64_t>(0, 40)}, {1, rc::gen::inRange<int64_t>(120, 300)}});
    c.dim = *rc::gen::element<int64_t>(1, 3, 8, 16, 24, 40, 64, 96, 128, 160);
    if (*rc::gen::inRange(0, 3) == 0) {
      c.cu = {0};
      for (int64_t b = 0; b < c.batch; ++b)
        c.cu.push_back(*rc::gen::inRange<int32_t>(c.cu.back(), static_cast<int32_t>(c.seqlen) + 1));
    }
    if (*rc::gen::inRange(0, 3) == 0)
      for (int64_t b = 0; b < c.batch; ++b) {
        const auto u = static_cast<size_t>(b);
        const auto most = c.cu.empty() ? static_cast<int32_t>(c.seqlen) : c.cu[u + 1] - c.cu[u];
        c.seqused.push_back(*rc::gen::inRange<int32_t>(0, most + 1));
      }
    c.in = *rc::gen::element(FA3_F32, FA3_F16, FA3_BF16);
    c.table = *rc::gen::element(FA3_F32, FA3_F16, FA3_BF16);
    c.out = *rc::gen::element(FA3_F8_E4M3, FA3_I8);
    c.scales = *rc::gen::element(Call::kTensor, Call::kHead, Call::kToken, Call::kBlocks);
    if (c.scales == Call::kBlocks) {
      c.rows = *rc::gen::element(0, 1, 2, 16, 100, 128, 129, 1000);
      c.cols = *rc::gen::element(0, 1, 16, 32, 100);
    }
    // Turned, a block of few elements may hold nothing but what cancels.
    if (c.cols != 1 && *rc::gen::arbitrary<bool>()) {
      const int64_t most = c.dim & -c.dim;
      c.hadamard = static_cast<int32_t>(*rc::gen::element(most, most, (most + 1) / 2));
      if (c.hadamard < 2) c.hadamard = 0;
    }
    if (c.dim > 1 && *rc::gen::arbitrary<bool>()) {
      c.rotary_dim = static_cast<int32_t>(2 * *rc::gen::inRange<int64_t>(1, c.dim / 2 + 1));
      c.rotary_layout = *rc::gen::element(FA3_ROTARY_HALVES, FA3_ROTARY_PAIRS);
      if (*rc::gen::arbitrary<bool>())
        for (int64_t b = 0; b < c.batch; ++b)
          c.position.push_back(*rc::gen::inRange<int32_t>(0, 90));
    }
    // Less its own mean a single row is nothing but rounding.
    c.offset = *rc::gen::arbitrary<bool>();
    for (int64_t b = 0; b < c.batch; ++b) c.offset = c.offset && c.rows_of(b) != 1;
    c.seed = *rc::gen::inRange<uint64_t>(0, 1000);
    return c;
  });
}

TEST(Quantize, RandomCalls_MatchTheReference) {
  const kit::Context tested = kit::make_context();
  kit::CodeCount count;
  kit::expect_property("quantize", 400, [&] {
    Call c = *any_call();
    c.fill();
    c.run(tested.get());
    RC_TAG(c.out == FA3_I8 ? "i8" : "e4m3");
    kit::expect_as_reference(c, count);
  });
  kit::expect_few_off(count);
}

// q·k of turned rows is q·k, to what rounding to codes allows; an offset comes back.
TEST(Quantize, RotationKeepsDotProducts) {
  const kit::Context context = kit::make_context();
  Call q, k;
  q.seqlen = k.seqlen = 20, q.dim = k.dim = 96;
  q.out = k.out = FA3_I8;
  k.seed = 2;
  q.fill(), k.fill();
  k.seed = q.seed;
  const auto in = [](const Call& c, int64_t i) {
    return static_cast<double>(verify::decode(c.in, &c.x[static_cast<size_t>(i) * 4]));
  };
  for (Call* c : {&q, &k}) c->hadamard = 32, c->offset = c == &k, c->run(context.get());
  for (int64_t i = 0; i < q.seqlen; ++i) {
    for (int64_t j = 0; j < k.seqlen; ++j) {
      double plain = 0, turned = 0, size = 0;
      for (int64_t c = 0; c < q.dim; ++c) {
        const double a = in(q, i * 2 * q.dim + c), b = in(k, j * 2 * k.dim + c);
        plain += a * b, turned += q.value(i, 0, c) * k.value(j, 0, c);
        size += a * a + b * b;
      }
      EXPECT_NEAR(turned, plain, 0.012 * size);
    }
  }
}

// What a Hadamard transform is for: one large column of 64 no longer makes the scale of all.
TEST(Quantize, OutlierIsSpread) {
  const kit::Context context = kit::make_context();
  const auto scales = [&](int32_t hadamard) {
    Call c;
    c.dim = 64, c.heads = 1, c.out = FA3_I8, c.hadamard = hadamard;
    c.fill();
    for (int64_t i = 0; i < c.seqlen; ++i)
      verify::encode(FA3_F32, 100, &c.x[static_cast<size_t>(i * c.dim + 5) * 4]);
    c.run(context.get());
    return std::accumulate(c.scale.begin(), c.scale.end(), 0.0);
  };
  EXPECT_LT(3 * scales(64), scales(0));
}

TEST(Quantize, NanAndInf_StayInTheirBlocks) {
  const kit::Context context = kit::make_context();
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const fa3_dtype out : {FA3_F8_E4M3, FA3_I8}) {
      Call clean, c;
      for (Call* x : {&clean, &c}) {
        x->seqlen = 40, x->heads = 1, x->dim = 32, x->out = out, x->hadamard = 16;
        x->scales = Call::kBlocks, x->rows = 8, x->cols = 16;
        x->fill();
      }
      verify::encode(FA3_F32, bad, &c.x[(17 * 32 + 3) * 4]);  // block (2, 0)
      clean.run(context.get()), c.run(context.get());
      for (int64_t i = 0; i < 40; ++i) {
        for (int64_t col = 0; col < 32; ++col) {
          const bool in_block = i / 8 == 2 && col < 16;
          const size_t scale = static_cast<size_t>(i / 8 * 2 + col / 16);
          if (!in_block) {
            EXPECT_EQ(c.code(i, 0, col), clean.code(i, 0, col)) << i << " " << col;
            EXPECT_EQ(c.scale[scale], clean.scale[scale]);
          } else if (out == FA3_I8) {
            EXPECT_TRUE(std::isnan(c.scale[scale]));
          } else {
            EXPECT_EQ(std::isnan(c.code(i, 0, col)), i == 17) << i << " " << col;
            EXPECT_GT(c.scale[scale], 0);
          }
        }
      }
    }
  }
}

TEST(Quantize, NoRows_ScaleIsOne) {
  const kit::Context context = kit::make_context();
  for (const Call::Scales scales : {Call::kTensor, Call::kHead, Call::kBlocks}) {
    Call c;
    c.scales = scales, c.rows = 4, c.seqused = {0}, c.offset = true;
    c.fill();
    c.run(context.get());
    for (const float s : c.scale) EXPECT_EQ(s, 1);
    for (const float m : c.mean) EXPECT_EQ(m, 0);
    for (const uint8_t code : c.codes) EXPECT_EQ(code, 0);
  }
}

TEST(Quantize, ThreadsDoNotMatter) {
  Call c;
  c.batch = 2, c.seqlen = 500, c.dim = 64, c.hadamard = 64, c.offset = true, c.scales = Call::kHead;
  c.fill();
  Call other = c;
  c.run(kit::make_context(1).get()), other.run(kit::make_context(7).get());
  EXPECT_EQ(c.codes, other.codes);
  EXPECT_EQ(c.scale, other.scale);
  EXPECT_EQ(c.mean, other.mean);
}

TEST(Quantize, PlanRunsAndIsExplained) {
  const kit::Context context = kit::make_context();
  Call c, once;
  c.hadamard = once.hadamard = 16;
  c.fill(), once.fill();
  once.run(context.get());
  fa3_quantize_args a = c.args();
  fa3_plan* made = nullptr;
  ASSERT_EQ(fa3_plan_quantize(context.get(), &a, &made), FA3_OK) << fa3_last_error();
  const kit::Plan plan(made);
  std::vector<std::byte> workspace(fa3_plan_workspace_bytes(made));
  ASSERT_EQ(fa3_plan_run(made, &a, workspace.data(), workspace.size(), nullptr), FA3_OK);
  EXPECT_EQ(c.codes, once.codes);
  std::string text(4096, '\0');
  ASSERT_EQ(fa3_explain(context.get(), FA3_OP_QUANTIZE, &a, text.data(), text.size(), nullptr),
            FA3_OK);
  EXPECT_THAT(text, HasSubstr("\"hadamard\": 16"));
  a.hadamard = 8;
  EXPECT_EQ(fa3_plan_run(made, &a, workspace.data(), workspace.size(), nullptr),
            FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("hadamard=8 differs from the plan's 16"));
}

// What a plan depends on, it compares; an empty sequence needs no angle.
TEST(Quantize, PositionsArePartOfThePlan) {
  const kit::Context context = kit::make_context();
  Call c;
  c.batch = 2, c.rotary_dim = 8, c.seqused = {7, 0}, c.position = {0, 0};
  c.fill();
  c.position = {0, -1};
  fa3_quantize_args a = c.args();
  fa3_plan* made = nullptr;
  ASSERT_EQ(fa3_plan_quantize(context.get(), &a, &made), FA3_OK) << fa3_last_error();
  const kit::Plan plan(made);
  std::vector<std::byte> workspace(fa3_plan_workspace_bytes(made));
  EXPECT_EQ(fa3_plan_run(made, &a, workspace.data(), workspace.size(), nullptr), FA3_OK)
      << fa3_last_error();
  a.rotary_position = {};
  EXPECT_EQ(fa3_plan_run(made, &a, workspace.data(), workspace.size(), nullptr),
            FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("rotary_position=false differs from the plan's true"));
}

TEST(Quantize, IsCancelled) {
  for (const fa3_backend backend : {FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE}) {
    fa3_context_options options = kit::default_options(2);
    options.backend = backend;
    options.progress = [](void*, int64_t, int64_t) { return 1; };
    Call c;
    c.fill();
    const fa3_quantize_args a = c.args();
    EXPECT_EQ(fa3_quantize(kit::make_context(options).get(), &a, nullptr), FA3_CANCELLED);
  }
}

struct Refused {
  const char* name;
  void (*change)(Call&, fa3_quantize_args&);
  std::vector<std::string> says;
};
void PrintTo(const Refused& r, std::ostream* out) { *out << r.name; }

class QuantizeRefused : public testing::TestWithParam<Refused> {};

TEST_P(QuantizeRefused, NamesWhatIsWrong) {
  Call c;
  c.rotary_dim = 8, c.fill();
  fa3_quantize_args a = c.args();
  GetParam().change(c, a);
  EXPECT_EQ(fa3_quantize(kit::make_context().get(), &a, nullptr), FA3_INVALID_ARGUMENT);
  for (const std::string& text : GetParam().says) EXPECT_THAT(fa3_last_error(), HasSubstr(text));
  EXPECT_EQ(c.scale[0], -7) << "something was written";
}

// Of two heads of seven rows, in one tile each.
void give_image(fa3_quantize_args& a, int64_t keys, int64_t columns, int64_t tiles = 1) {
  static uint8_t bytes[2 * 64 * 64];
  const int64_t shape[] = {1, 2, tiles, keys, columns};
  a.v_image = fa3_dense(bytes, FA3_F8_E4M3, 5, shape);
  a.v_image_layout = FA3_V_IMAGE_SM90;
}

const std::vector<Refused> kRefused = {
    {"ImageWithoutLayout",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 32), a.v_image_layout = 0; },
     {"v_image_layout=0", "FA3_V_IMAGE_SM90"}},
    {"ImageOfAnotherRelease",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 32), a.v_image_layout = 2; },
     {"v_image_layout=2", "another release"}},
    {"LayoutWithoutImage",
     [](Call&, fa3_quantize_args& a) { a.v_image_layout = 1; },
     {"v_image_layout=1", "v_image is absent"}},
    {"ImageReserved",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 32), a.v_image_reserved = 3; },
     {"v_image_reserved=3"}},
    {"ImageOfI8",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 32), a.codes.dtype = FA3_I8; },
     {"codes.dtype=i8", "leave v_image out"}},
    {"ImageOf48Keys",
     [](Call&, fa3_quantize_args& a) { give_image(a, 48, 32); },
     {"v_image.shape[3]=48 keys", "multiple of 32"}},
    {"ImageTooNarrow",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 16); },
     {"v_image.shape[4]=16 columns", "head_dim=16"}},
    {"ImageOfMoreTiles",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 32, 2); },
     {"v_image.shape[2]=2", "tiles=1"}},
    {"ImageWithGaps",
     [](Call&, fa3_quantize_args& a) { give_image(a, 32, 32), a.v_image.stride[1] = 2048; },
     {"v_image.stride[1]=2048", "need 1024"}},
    {"NoCodes", [](Call&, fa3_quantize_args& a) { a.codes = {}; }, {"codes is absent"}},
    {"XOf8Bits", [](Call&, fa3_quantize_args& a) { a.x.dtype = FA3_I8; }, {"x.dtype=i8", "bf16"}},
    {"CodesOf16Bits",
     [](Call&, fa3_quantize_args& a) { a.codes.dtype = FA3_F16; },
     {"codes.dtype=f16", "f8_e4m3 or i8"}},
    {"CodesOfAnotherShape",
     [](Call&, fa3_quantize_args& a) { a.codes.shape[1] = 6; },
     {"codes.shape[1]=6", "seqlen=7"}},
    {"ScaleOfAnotherShape",
     [](Call&, fa3_quantize_args& a) { a.block.rows = 0; },
     {"scale.rank=3", "(1), (batch, heads) with block 0"}},
    {"NegativeBlock", [](Call&, fa3_quantize_args& a) { a.block.cols = -1; }, {"block=(1, -1)"}},
    {"HadamardOf12", [](Call&, fa3_quantize_args& a) { a.hadamard = 12; }, {"hadamard=12", "16"}},
    {"HadamardTooLarge", [](Call&, fa3_quantize_args& a) { a.hadamard = 32; }, {"head_dim=16"}},
    {"SineMissing",
     [](Call&, fa3_quantize_args& a) { a.rotary_sin = {}; },
     {"rotary_cos is given, but rotary_sin is absent"}},
    {"SineOfAnotherShape",
     [](Call&, fa3_quantize_args& a) { a.rotary_sin.shape[0] = 6; },
     {"rotary_sin", "(6, 4)", "(7, 4)"}},
    {"TableTooWide",
     [](Call&, fa3_quantize_args& a) {
       a.rotary_cos.shape[0] = a.rotary_sin.shape[0] = 1;
       a.rotary_cos.shape[1] = a.rotary_sin.shape[1] = 9;
     },
     {"rotary_cos.shape[1]=9", "head_dim=16"}},
    {"TableTooShort",
     [](Call&, fa3_quantize_args& a) { a.rotary_cos.shape[0] = a.rotary_sin.shape[0] = 6; },
     {"rotary_cos.shape[0]=6", "at least 7"}},
    {"TableTooShortForASequence",
     [](Call& c, fa3_quantize_args& a) {
       const int64_t one[] = {1};
       c.position = {1};
       a.rotary_position = fa3_dense(c.position.data(), FA3_I32, 1, one);
     },
     {"sequence 0 has 7 rows from position 1 on", "0…6"}},
    {"EmptyTable",
     [](Call& c, fa3_quantize_args& a) {
       const int64_t one[] = {1};
       c.seqused = {0};
       a.seqused = fa3_dense(c.seqused.data(), FA3_I32, 1, one);
       a.rotary_cos.shape[0] = a.rotary_sin.shape[0] = 0;
     },
     {"rotary_cos.shape[0]=0", "at least 1"}},
    {"LayoutUnknown",
     [](Call&, fa3_quantize_args& a) { a.rotary_layout = 2; },
     {"rotary_layout=2"}},
    {"PositionWithoutTables",
     [](Call& c, fa3_quantize_args& a) {
       const int64_t one[] = {1};
       c.position = {0};
       a.rotary_position = fa3_dense(c.position.data(), FA3_I32, 1, one);
       a.rotary_cos = a.rotary_sin = {};
     },
     {"rotary_position is given"}},
    {"ScaleOverX", [](Call& c, fa3_quantize_args& a) { a.scale.data = c.x.data(); }, {"shares"}},
};
INSTANTIATE_TEST_SUITE_P(Calls, QuantizeRefused, testing::ValuesIn(kRefused),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3
