// SPDX-License-Identifier: BSD-3-Clause
// quantize_test.cpp — the quantising kernels of Hopper in the simulator, against the FP64
// reference: random calls of each variant that is compiled ahead, NaN and Inf, empty tensors.
#include <gmock/gmock.h>

#include <limits>

#include "plan/sm90/quantize/configs.h"
#include "tests/kit/quantize_call.h"
#include "tests/kit/sanitized.h"

namespace fa3 {
namespace {

using sm90::FloatType;
using sm90::RotaryKind;
using sm90::TurnConfig;
using Call = kit::QuantizeCall;

kit::Context simulator() {
  fa3_context_options options = kit::default_options();
  options.backend = FA3_BACKEND_SIM;
  return kit::make_context(options);
}

fa3_dtype dtype_of(FloatType type) {
  return type == FloatType::kF32 ? FA3_F32 : type == FloatType::kF16 ? FA3_F16 : FA3_BF16;
}

void set_rotary(const TurnConfig& turn, Call& c) {
  c.rotary_dim = turn.rotary_dim;
  c.rotary_layout = turn.rotary == RotaryKind::kPairs ? FA3_ROTARY_PAIRS : FA3_ROTARY_HALVES;
}

rc::Gen<Call> any_call_of(const TurnConfig& turn) {
  return rc::gen::exec([turn] {
    Call c;
    c.dim = turn.head_dim, c.in = dtype_of(turn.x), c.table = dtype_of(turn.table);
    c.hadamard = turn.hadamard;
    set_rotary(turn, c);
    c.batch = *rc::gen::inRange<int64_t>(1, 4);
    c.heads = *rc::gen::inRange<int64_t>(1, c.rotary_dim > 0 ? 9 : 3);
    c.seqlen = *rc::gen::weightedOneOf<int64_t>(
        {{3, rc::gen::inRange<int64_t>(0, 80)}, {2, rc::gen::inRange<int64_t>(120, 600)}});
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
    c.out = *rc::gen::element(FA3_F8_E4M3, FA3_I8);
    c.scales = *rc::gen::element(Call::kTensor, Call::kHead, Call::kToken, Call::kBlocks);
    if (turn.block_cols > 0) c.scales = Call::kBlocks, c.cols = turn.block_cols;
    if (c.scales == Call::kBlocks) c.rows = *rc::gen::element(0, 1, 2, 16, 64, 100, 128, 1000);
    if (c.rotary_dim > 0 && *rc::gen::arbitrary<bool>())
      for (int64_t b = 0; b < c.batch; ++b) c.position.push_back(*rc::gen::inRange<int32_t>(0, 90));
    // Less its own mean a single row is nothing but rounding.
    c.offset = *rc::gen::arbitrary<bool>();
    for (int64_t b = 0; b < c.batch; ++b) c.offset = c.offset && c.rows_of(b) != 1;
    c.seed = *rc::gen::inRange<uint64_t>(0, 1000);
    return c;
  });
}

class SimQuantize : public testing::TestWithParam<TurnConfig> {};

TEST_P(SimQuantize, RandomCalls_MatchTheReference) {
  const kit::Context sim = simulator();
  kit::CodeCount count;
  kit::expect_property("quantize", 40, [&] {
    Call c = *any_call_of(GetParam());
    c.fill();
    c.run(sim.get());
    kit::expect_as_reference(c, count);
  });
  kit::expect_few_off(count);
}

// A bound of the sequences' lengths bounds none of the rows behind the last one.
TEST_P(SimQuantize, ManyRowsBehindTheLastSequence_AreZeros) {
  const kit::Context sim = simulator();
  kit::CodeCount count;
  Call c;
  c.dim = GetParam().head_dim, c.in = dtype_of(GetParam().x), c.table = dtype_of(GetParam().table);
  c.hadamard = GetParam().hadamard, c.heads = 8, c.scales = Call::kToken;
  if (GetParam().block_cols > 0) return;
  set_rotary(GetParam(), c);
  c.batch = 2, c.seqlen = 300, c.max_seqlen = 60, c.cu = {0, 60, 100};
  c.fill();
  c.run(sim.get());
  kit::expect_as_reference(c, count);
  kit::expect_few_off(count);
}

// A row of NaN and one of Inf: scales, means and codes of all others as on the processor.
void expect_nan_and_inf_as_on_the_processor(const TurnConfig& turn, fa3_dtype out,
                                            Call::Scales scales, bool offset) {
  const kit::Context sim = simulator(), cpu = kit::make_context();
  Call c;
  c.dim = turn.head_dim, c.in = dtype_of(turn.x), c.table = dtype_of(turn.table), c.out = out;
  c.hadamard = turn.hadamard, c.seqlen = 300, c.scales = scales, c.offset = offset;
  c.heads = offset ? 1 : 8;  // fewer leave consumers of the kernel for rotated rows idle
  set_rotary(turn, c);
  if (scales == Call::kBlocks) c.rows = 64;
  c.fill();
  const auto put = [&](int64_t row, int64_t column, double value) {
    const int64_t size = verify::element_bytes(c.in);
    verify::encode(c.in, value, &c.x[static_cast<size_t>((row * c.heads * c.dim + column) * size)]);
  };
  put(70, 3, std::nan("")), put(290, c.dim - 1, std::numeric_limits<double>::infinity());
  Call expected = c;
  c.run(sim.get()), expected.run(cpu.get());
  for (size_t i = 0; i < c.scale.size(); ++i) {
    EXPECT_EQ(std::isnan(c.scale[i]), std::isnan(expected.scale[i])) << i;
    if (!std::isnan(c.scale[i])) {
      EXPECT_NEAR(c.scale[i], expected.scale[i], 1e-5 * std::fabs(expected.scale[i]));
    }
  }
  for (size_t i = 0; offset && i < c.mean.size(); ++i)
    EXPECT_NEAR(c.mean[i], expected.mean[i], 1e-5);
  int64_t off = 0;
  for (size_t i = 0; i < c.codes.size(); ++i) {
    const bool e4m3 = out == FA3_F8_E4M3;
    EXPECT_EQ(e4m3 && (c.codes[i] & 0x7f) == 0x7f, e4m3 && (expected.codes[i] & 0x7f) == 0x7f);
    off += c.codes[i] != expected.codes[i];
  }
  EXPECT_LE(off, static_cast<int64_t>(c.codes.size()) / 500);
}

TEST_P(SimQuantize, NanAndInf_AsOnTheProcessor) {
  if (GetParam().block_cols > 0) return;
  for (const fa3_dtype out : {FA3_F8_E4M3, FA3_I8}) {
    for (const Call::Scales scales : {Call::kToken, Call::kBlocks, Call::kHead})
      expect_nan_and_inf_as_on_the_processor(GetParam(), out, scales, true);
    // The kernel for rotated rows has a scale for each and takes no mean off.
    expect_nan_and_inf_as_on_the_processor(GetParam(), out, Call::kToken, false);
  }
}

// Turned, finite elements may be beyond FP32: that is NaN, as on the processor, though the kernel
// turns in units by which they are finite.
TEST(SimQuantizeLargest, BeyondFp32_AsOnTheProcessor) {
  if (kit::kSanitized) GTEST_SKIP() << "values of elements: nothing for sanitizers";
  const kit::Context sim = simulator(), cpu = kit::make_context();
  Call c;
  c.dim = c.hadamard = c.seqlen = 128, c.in = FA3_BF16, c.heads = 1;
  c.fill();
  const auto put = [&](int64_t row, int64_t column, double value) {
    verify::encode(c.in, value, &c.x[static_cast<size_t>((row * c.dim + column) * 2)]);
  };
  for (int64_t row = 0; row < c.dim; ++row)
    for (int64_t column = 0; column < c.dim; ++column) put(row, column, row == column ? 1 : 0);
  c.run(cpu.get());
  std::vector<double> signs;  // of column 0
  for (int64_t row = 0; row < c.dim; ++row) signs.push_back(c.value(row, 0, 0) > 0 ? 1 : -1);
  c.fill();
  for (int64_t column = 0; column < c.dim; ++column)  // 15 / sqrt(128) > 1 > 15 / 16
    put(3, column, column < 15 ? 3.3e38 * signs[static_cast<size_t>(column)] : 0);
  for (const Call::Scales scales : {Call::kToken, Call::kBlocks, Call::kHead}) {
    c.scales = scales, c.rows = scales == Call::kBlocks ? 64 : 0;
    Call expected = c;
    c.run(sim.get()), expected.run(cpu.get());
    for (size_t i = 0; i < c.scale.size(); ++i)
      EXPECT_NEAR(c.scale[i], expected.scale[i], 1e-5 * expected.scale[i]) << i;
    int64_t nan = 0;
    for (int64_t column = 0; column < c.dim; ++column) {
      const bool is = std::isnan(c.code(3, 0, column));
      EXPECT_EQ(is, std::isnan(expected.code(3, 0, column))) << column;
      nan += is ? 1 : 0;
    }
    EXPECT_GT(nan, 0);
  }
}

// Of many heads with lengths of their own a CTA sums up one chunk of rows after another.
TEST(SimQuantizeMean, ChunksInOneCta_MatchTheReference) {
  if (kit::kSanitized) GTEST_SKIP() << "other heads in the same places: nothing for sanitizers";
  const kit::Context sim = simulator();
  kit::CodeCount count;
  for (const int32_t hadamard : {64, 0}) {
    Call c;
    c.dim = 64, c.in = FA3_BF16, c.out = FA3_I8, c.hadamard = hadamard, c.scales = Call::kHead;
    c.seqlen = 520, c.batch = 130, c.heads = 2, c.offset = true;
    c.seqused.assign(130, 0);
    c.seqused[5] = 520, c.seqused[129] = 515;
    c.fill();
    c.run(sim.get());
    kit::expect_as_reference(c, count);
  }
  kit::expect_few_off(count);
}

std::string name_of(const testing::TestParamInfo<TurnConfig>& info) {
  const TurnConfig& t = info.param;
  std::string name = fmt::format("d{}_{}_h{}", t.head_dim,
                                 size_of(t.x) == 4        ? "f32"
                                 : t.x == FloatType::kF16 ? "f16"
                                                          : "bf16",
                                 t.hadamard);
  if (t.rotary_dim > 0)
    name += fmt::format("_{}{}", t.rotary == RotaryKind::kPairs ? "pairs" : "halves", t.rotary_dim);
  return name;
}

// Sanitized simulators have one head dim.
std::vector<TurnConfig> turns() {
  std::vector<TurnConfig> all(std::begin(sm90::kTurnsAhead), std::end(sm90::kTurnsAhead));
  if (kit::reduction() > 1)
    std::erase_if(all, [](const TurnConfig& turn) { return turn.head_dim != 64; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Turns, SimQuantize, testing::ValuesIn(turns()), name_of);

// The kernel of rotated rows looks for a tile's sequence among 32 at a time.
TEST(SimQuantizeRotated, ManySequences_MatchTheReference) {
  const kit::Context sim = simulator();
  kit::CodeCount count;
  for (const TurnConfig& turn : turns()) {
    if (turn.rotary_dim == 0 || turn.block_cols > 0) continue;
    for (const bool by_total_row : {true, false}) {
      Call c;
      c.dim = turn.head_dim, c.in = dtype_of(turn.x), c.table = dtype_of(turn.table);
      c.hadamard = turn.hadamard, c.heads = 8;
      c.scales = by_total_row ? Call::kToken : Call::kBlocks, c.rows = 1;
      set_rotary(turn, c);
      c.batch = 36, c.cu = {0}, c.seqused.clear();
      for (int32_t b = 0; b < 36; ++b) {
        c.seqused.push_back(b == 34 ? 40 : b % 3);
        c.cu.push_back(c.cu.back() + c.seqused.back());
      }
      c.seqused[34] = 35;
      c.seqlen = c.cu.back() + 20, c.max_seqlen = by_total_row ? 40 : 0;
      c.fill();
      c.run(sim.get());
      kit::expect_as_reference(c, count);
    }
  }
  kit::expect_few_off(count);
}

TEST(SimQuantizeEmpty, ScalesAreOne) {
  const kit::Context sim = simulator();
  for (const Call::Scales scales : {Call::kTensor, Call::kHead, Call::kBlocks}) {
    for (const bool no_rows : {true, false}) {
      Call c;
      c.dim = 64, c.in = FA3_BF16, c.scales = scales, c.offset = true;
      if (scales == Call::kBlocks) c.rows = 4;
      if (no_rows) c.seqlen = 0, c.scales = scales == Call::kBlocks ? Call::kHead : scales;
      if (!no_rows) c.seqused = {0};
      c.fill();
      c.run(sim.get());
      for (const float s : c.scale) EXPECT_EQ(s, 1);
      for (const float m : c.mean) EXPECT_EQ(m, 0);
      for (const uint8_t code : c.codes) EXPECT_EQ(code, 0);
    }
  }
}

// No rows at all: there is a scale for all of them, and none for a block.
TEST(SimQuantizeEmpty, WithoutRowsNothingOutsideIsTouched) {
  const kit::Context sim = simulator();
  for (const int64_t rows : {0, 1, 64, 512}) {
    for (const bool varlen : {false, true}) {
      for (const bool rotated : {false, true}) {
        SCOPED_TRACE(fmt::format("blocks of {} rows{}{}", rows, varlen ? ", varlen" : "",
                                 rotated ? ", rotated" : ""));
        Call c;
        c.dim = 64, c.in = FA3_BF16, c.batch = 2, c.heads = 8, c.seqlen = 0;
        c.scales = rows == 0 ? Call::kHead : Call::kBlocks, c.rows = rows;
        if (rotated) c.hadamard = 64, c.rotary_dim = 64;
        if (varlen) c.cu = {0, 0, 0};
        c.fill();
        c.run(sim.get());
        for (const float s : c.scale) EXPECT_EQ(s, rows == 0 ? 1 : -7);
      }
    }
  }
}

struct Declined {
  const char* name;
  void (*change)(Call&);
  const char* says;
};
void PrintTo(const Declined& d, std::ostream* out) { *out << d.name; }

class SimQuantizeDeclined : public testing::TestWithParam<Declined> {};

TEST_P(SimQuantizeDeclined, NamesValueAndRemedy) {
  Call c;
  c.dim = 64, c.in = FA3_BF16;
  GetParam().change(c);
  c.fill();
  const fa3_quantize_args a = c.args();
  EXPECT_EQ(fa3_quantize(simulator().get(), &a, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr(GetParam().says));
  EXPECT_EQ(c.scale[0], -7) << "something was written";
}

// Kernels count positions and tiles in 32 bits. Tensors are not looked at.
TEST(SimQuantizeCounts, MorePositionsThanKernelsCount_AreDeclined) {
  Call c;
  c.dim = 64, c.in = FA3_BF16, c.hadamard = 64, c.rotary_dim = 64, c.scales = Call::kToken;
  c.fill();
  fa3_quantize_args a = c.args();
  a.rotary_cos.shape[0] = a.rotary_sin.shape[0] = int64_t{1} << 31;
  EXPECT_EQ(fa3_quantize(simulator().get(), &a, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr("rotary_cos.shape[0]=2147483648 on sm90"));
}
TEST(SimQuantizeCounts, MoreTilesThanKernelsCount_AreDeclined) {
  Call c;
  c.dim = 64, c.in = FA3_BF16, c.hadamard = 64, c.rotary_dim = 64, c.scales = Call::kToken;
  c.heads = 8;
  c.fill();
  fa3_quantize_args a = c.args();
  const int64_t batch = 4096, seqlen = int64_t{1} << 26;
  for (fa3_tensor* const t : {&a.x, &a.codes}) {
    t->shape[0] = batch, t->shape[1] = seqlen;
    t->stride[0] = seqlen * t->stride[1];
  }
  a.scale.shape[0] = batch, a.scale.shape[2] = seqlen;
  a.scale.stride[0] = c.heads * seqlen, a.scale.stride[1] = seqlen;
  a.rotary_cos.shape[0] = a.rotary_sin.shape[0] = seqlen;
  EXPECT_EQ(fa3_quantize(simulator().get(), &a, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr("tiles of rows="));
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr("split the batch"));
}

const std::vector<Declined> kDeclined = {
    {"HeadDim", [](Call& c) { c.dim = 72; }, "head_dim=72 on sm90, need a multiple of 16"},
    {"RotaryDim", [](Call& c) { c.rotary_dim = 24; }, "rotary_cos.shape[1]=12"},
    {"BlockCols", [](Call& c) { c.scales = Call::kBlocks, c.cols = 12; },
     "block.cols=12 on sm90, need 0 or a multiple of 8"},
    {"ManyColumnsAThread", [](Call& c) { c.dim = 256, c.rotary_dim = 16; }, "256 columns a thread"},
    {"NotAhead", [](Call& c) { c.hadamard = 2; }, "the simulator has a choice of kernels only"},
};
INSTANTIATE_TEST_SUITE_P(Calls, SimQuantizeDeclined, testing::ValuesIn(kDeclined),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3
