// SPDX-License-Identifier: BSD-3-Clause
// eight_bit_test.cpp — 8-bit tensors on the processor: the result has the bits of an FP32 call on
// tensors that this test decodes, whatever blocks the scales are of; and what is refused.
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using testing::HasSubstr;

// What the scales of one tensor are of.
enum class Scales { kNone, kTensor, kHead, kToken, kBlocks };

struct Case {
  const char* name;
  fa3_dtype qk, v;
  Scales q_scales, kv_scales;
  bool varlen = false;
  bool offsets = false;
  bool q_heads_of_kv = false;
  int32_t rows = 0, cols = 0;  // of kBlocks
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr int64_t kBatch = 3, kHeadsQ = 4, kHeadsKv = 2, kQk = 40, kV = 24, kSeqQ = 23, kSeqKv = 37;
constexpr int32_t kCuQ[] = {0, 23, 23, 41}, kCuKv[] = {0, 37, 60, 61};  // 44 and 70 rows in all
constexpr int64_t kTotalQ = 44, kTotalKv = 70;

// One input: its codes, what they mean, and the tensors that say so.
struct Input {
  std::vector<uint8_t> codes;
  std::vector<float> decoded, scale, offset;
  fa3_tensor coded{}, plain{}, scales{}, offsets{};
  fa3_scale_block block{};
};

// Each code of E4M3 by the format's definition (OCP 8-bit floating point, 5.2); no NaN here.
float decode(fa3_dtype type, const uint8_t* at) {
  if (type == FA3_I8) return static_cast<int8_t>(*at);
  if (type == FA3_F8_E4M3) {
    const int exponent = *at >> 3 & 15, mantissa = *at & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return static_cast<float>(*at & 0x80 ? -magnitude : magnitude);
  }
  return static_cast<float>(verify::decode(type, at));
}

class EightBit : public testing::TestWithParam<Case> {
 protected:
  // rows, or total rows where varlen; cu: begin of each sequence there.
  Input make(fa3_dtype type, bool query, int64_t dim, Scales kind) {
    const Case& c = GetParam();
    const int64_t heads = query ? kHeadsQ : kHeadsKv, seqlen = query ? kSeqQ : kSeqKv;
    const int64_t total = query ? kTotalQ : kTotalKv;
    const int32_t* const cu = query ? kCuQ : kCuKv;
    const int64_t rows = c.varlen ? total : kBatch * seqlen;
    const int64_t scale_heads = query && c.q_heads_of_kv ? kHeadsKv : heads;
    Input x;
    const size_t bytes = size_t{type == FA3_BF16 ? 2u : 1u};
    const auto n = static_cast<size_t>(rows * heads * dim);
    x.codes.resize(n * bytes);
    for (size_t i = 0; i < n; ++i) {
      if (type == FA3_BF16) {
        verify::encode(type, normal_(random_), &x.codes[2 * i]);
      } else {
        do x.codes[i] = static_cast<uint8_t>(random_());
        while (type == FA3_F8_E4M3 && (x.codes[i] & 0x7f) == 0x7f);  // NaN
      }
    }
    const std::vector<int64_t> shape = c.varlen ? std::vector<int64_t>{total, heads, dim}
                                                : std::vector<int64_t>{kBatch, seqlen, heads, dim};
    x.coded = fa3_dense(x.codes.data(), type, static_cast<int32_t>(shape.size()), shape.data());
    x.decoded.resize(n);
    x.plain = fa3_dense(x.decoded.data(), FA3_F32, x.coded.rank, shape.data());

    std::vector<int64_t> of;
    if (kind == Scales::kTensor) of = {1};
    if (kind == Scales::kHead) of = {kBatch, scale_heads};
    if (kind == Scales::kToken && c.varlen) of = {total, scale_heads};
    if (kind == Scales::kToken && !c.varlen) of = {kBatch, scale_heads, seqlen};
    if (kind == Scales::kToken) x.block = {1, 0};
    const int64_t longest = c.varlen ? total : seqlen;  // max_seqlen is left at 0
    if (kind == Scales::kBlocks) {
      x.block = {c.rows, c.cols};
      of = {kBatch, scale_heads, c.rows ? (longest + c.rows - 1) / c.rows : 1,
            c.cols ? (dim + c.cols - 1) / c.cols : 1};
    }
    size_t count = of.empty() ? 0 : 1;
    for (const int64_t extent : of) count *= static_cast<size_t>(extent);
    for (size_t i = 0; i < count; ++i)
      x.scale.push_back(static_cast<float>(std::exp(normal_(random_)) / (type == FA3_I8 ? 64 : 4)));
    if (count > 0)
      x.scales = fa3_dense(x.scale.data(), FA3_F32, static_cast<int32_t>(of.size()), of.data());
    if (c.offsets && !query && type != FA3_BF16) {
      const int64_t of_offsets[] = {kBatch, heads, dim};
      for (int64_t i = 0; i < kBatch * heads * dim; ++i)
        x.offset.push_back(static_cast<float>(normal_(random_)));
      x.offsets = fa3_dense(x.offset.data(), FA3_F32, 3, of_offsets);
    }
    for (int64_t b = 0; b < kBatch; ++b) {
      const int64_t begin = c.varlen ? cu[b] : b * seqlen;
      const int64_t end = c.varlen ? cu[b + 1] : begin + seqlen;
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t col = 0; col < dim; ++col) {
            const int64_t i = row - begin, hs = h * scale_heads / heads;
            const int64_t blocks_of_cols = of.size() == 4 ? of[3] : 1;
            const int64_t blocks_of_rows = of.size() == 4 ? of[2] : 1;
            int64_t at = 0;
            if (kind == Scales::kHead) at = b * scale_heads + hs;
            if (kind == Scales::kToken && c.varlen) at = row * scale_heads + hs;
            if (kind == Scales::kToken && !c.varlen) at = (b * scale_heads + hs) * seqlen + i;
            if (kind == Scales::kBlocks)
              at = ((b * scale_heads + hs) * blocks_of_rows + (c.rows ? i / c.rows : 0)) *
                       blocks_of_cols +
                   (c.cols ? col / c.cols : 0);
            const auto e = static_cast<size_t>((row * heads + h) * dim + col);
            const float scale = count > 0 ? x.scale[static_cast<size_t>(at)] : 1;
            const float offset =
                x.offset.empty() ? 0 : x.offset[static_cast<size_t>((b * heads + h) * dim + col)];
            x.decoded[e] = std::fma(decode(type, &x.codes[bytes * e]), scale, offset);
          }
        }
      }
    }
    return x;
  }

  void SetUp() override {
    const Case& c = GetParam();
    q_ = make(c.qk, true, kQk, c.q_scales);
    k_ = make(c.qk, false, kQk, c.kv_scales);
    v_ = make(c.v, false, kV, c.v == FA3_BF16 ? Scales::kNone : c.kv_scales);
  }

  // Output and LSE of a call on these.
  struct Out {
    std::vector<float> o, lse;
    bool operator==(const Out&) const = default;
  };
  fa3_forward_args args(Out& out, bool coded) {
    const Case& c = GetParam();
    const int64_t rows = c.varlen ? kTotalQ : kBatch * kSeqQ;
    out.o.assign(static_cast<size_t>(rows * kHeadsQ * kV), NAN);
    out.lse.assign(static_cast<size_t>(rows * kHeadsQ), NAN);
    fa3_forward_args a{};
    a.struct_size = sizeof a;
    a.q = coded ? q_.coded : q_.plain;
    a.k = coded ? k_.coded : k_.plain;
    a.v = coded ? v_.coded : v_.plain;
    if (coded) {
      a.q_scale = q_.scales, a.k_scale = k_.scales, a.v_scale = v_.scales;
      a.q_block = q_.block, a.k_block = k_.block, a.v_block = v_.block;
      a.k_offset = k_.offsets, a.v_offset = v_.offsets;
    }
    int64_t shape[4] = {kBatch, kSeqQ, kHeadsQ, kV}, of_lse[3] = {kBatch, kHeadsQ, kSeqQ};
    int64_t cut[1] = {kBatch + 1};
    a.mask = FA3_MASK_CAUSAL;
    if (c.varlen) {
      shape[0] = kTotalQ, shape[1] = kHeadsQ, shape[2] = kV;
      of_lse[0] = kHeadsQ, of_lse[1] = kTotalQ;
      a.cu_seqlens_q = fa3_dense(kCuQ, FA3_I32, 1, cut);
      a.cu_seqlens_kv = fa3_dense(kCuKv, FA3_I32, 1, cut);
    }
    a.o = fa3_dense(out.o.data(), FA3_F32, c.varlen ? 3 : 4, shape);
    a.lse = fa3_dense(out.lse.data(), FA3_F32, c.varlen ? 2 : 3, of_lse);
    return a;
  }

  Input q_, k_, v_;
  std::mt19937 random_{11};
  std::normal_distribution<double> normal_;
};

TEST_P(EightBit, IsTheCallOnDecodedTensors) {
  const auto context = kit::make_context();
  Out coded, plain;
  const fa3_forward_args a = args(coded, true), b = args(plain, false);
  ASSERT_EQ(fa3_forward(context.get(), &a, nullptr), FA3_OK) << fa3_last_error();
  ASSERT_EQ(fa3_forward(context.get(), &b, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(coded.o, plain.o);
  EXPECT_EQ(coded.lse, plain.lse);
  for (const float x : coded.o) ASSERT_TRUE(std::isfinite(x));
}

constexpr Case kCases[] = {
    {"NoScales", FA3_F8_E4M3, FA3_F8_E4M3, Scales::kNone, Scales::kNone},
    {"OfTheTensor", FA3_F8_E4M3, FA3_F8_E4M3, Scales::kTensor, Scales::kTensor},
    {"OfHeads", FA3_F8_E4M3, FA3_F8_E4M3, Scales::kHead, Scales::kHead, false, false, true},
    {"OfHeadsVarlen", FA3_F8_E4M3, FA3_F8_E4M3, Scales::kHead, Scales::kHead, true},
    {"OfTokens", FA3_I8, FA3_F8_E4M3, Scales::kToken, Scales::kToken, false, true},
    {"OfTokensVarlen", FA3_I8, FA3_F8_E4M3, Scales::kToken, Scales::kToken, true, true, true},
    {"OfTiles", FA3_I8, FA3_F8_E4M3, Scales::kToken, Scales::kBlocks, false, true, false, 16, 0},
    {"OfTilesVarlen", FA3_I8, FA3_F8_E4M3, Scales::kBlocks, Scales::kBlocks, true, true, false, 16,
     0},
    {"OfBlocks", FA3_F8_E4M3, FA3_F8_E4M3, Scales::kBlocks, Scales::kBlocks, false, false, true, 8,
     16},
    {"OfColumns", FA3_F8_E4M3, FA3_F8_E4M3, Scales::kBlocks, Scales::kBlocks, true, false, false, 0,
     16},
    {"SixteenBitV", FA3_I8, FA3_BF16, Scales::kToken, Scales::kBlocks, false, true, false, 32, 0},
};
INSTANTIATE_TEST_SUITE_P(Scales, EightBit, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// ---- What is refused ----------------------------------------------------------------------------

struct Refused {
  const char* name;
  void (*change)(fa3_forward_args&);
  fa3_status status;
  std::vector<std::string> says;
};
void PrintTo(const Refused& r, std::ostream* out) { *out << r.name; }

class EightBitRefused : public testing::TestWithParam<Refused> {};

float g_scale[4096];  // all 1

const std::vector<Refused> kRefused = {
    {"ScalesOf16Bits",
     [](fa3_forward_args& a) { a.q.dtype = a.k.dtype = a.v.dtype = FA3_BF16; },
     FA3_INVALID_ARGUMENT,
     {"q_scale", "bf16", "leave q_scale out"}},
    {"BlockWithoutScales",
     [](fa3_forward_args& a) { a.k_block.rows = 16; },
     FA3_INVALID_ARGUMENT,
     {"k_block.rows=16", "k_scale is absent"}},
    {"NegativeBlock",
     [](fa3_forward_args& a) { a.q_block.cols = -1; },
     FA3_INVALID_ARGUMENT,
     {"q_block.cols=-1"}},
    {"BlocksOfAnotherShape",
     [](fa3_forward_args& a) {
       const int64_t shape[] = {2, 4, 3, 1};
       a.q_scale = fa3_dense(g_scale, FA3_F32, 4, shape), a.q_block.rows = 16;
     },
     FA3_INVALID_ARGUMENT,
     {"q_scale.shape[2]=3", "blocks of rows=2"}},
    {"RankThatIsNone",
     [](fa3_forward_args& a) {
       const int64_t shape[] = {2, 4, 20};
       a.q_scale = fa3_dense(g_scale, FA3_F32, 3, shape);
     },
     FA3_INVALID_ARGUMENT,
     {"q_scale.rank=3", "q_block.rows=1"}},
    {"ScaleOfF16",
     [](fa3_forward_args& a) { a.q_scale.dtype = FA3_F16; },
     FA3_INVALID_ARGUMENT,
     {"q_scale.dtype=f16", "need f32"}},
    {"OffsetOfAnotherShape",
     [](fa3_forward_args& a) {
       const int64_t shape[] = {2, 4, 16};
       a.k_offset = fa3_dense(g_scale, FA3_F32, 3, shape);
     },
     FA3_INVALID_ARGUMENT,
     {"k_offset.shape[1]=4", "heads_kv=2"}},
    {"I8AsV",
     [](fa3_forward_args& a) { a.q.dtype = a.k.dtype = a.v.dtype = FA3_I8; },
     FA3_INVALID_ARGUMENT,
     {"v.dtype=i8", "f8_e4m3, f16 or bf16"}},
    {"I8AsO",
     [](fa3_forward_args& a) { a.o.dtype = FA3_I8; },
     FA3_INVALID_ARGUMENT,
     {"o.dtype=i8", "f32, f16 or bf16"}},
    {"KOf16BitsBesideQOf8",
     [](fa3_forward_args& a) { a.k.dtype = FA3_BF16; },
     FA3_INVALID_ARGUMENT,
     {"k.dtype=bf16", "f8_e4m3 as q"}},
    {"E5m2",
     [](fa3_forward_args& a) { a.q.dtype = FA3_F8_E5M2; },
     FA3_UNSUPPORTED,
     {"q.dtype=f8_e5m2"}},
    {"ScaleZero",
     [](fa3_forward_args&) { g_scale[5] = 0; },
     FA3_INVALID_ARGUMENT,
     {"q_scale of sequence 1, head 1, row 0, column 0 is 0", "> 0"}},
    {"ScaleNegative",
     [](fa3_forward_args&) { g_scale[2] = -1; },
     FA3_INVALID_ARGUMENT,
     {"head 2", "is -1"}},
    {"ScaleNan", [](fa3_forward_args&) { g_scale[7] = NAN; }, FA3_INVALID_ARGUMENT, {"nan"}},
    {"ScaleInf", [](fa3_forward_args&) { g_scale[0] = INFINITY; }, FA3_INVALID_ARGUMENT, {"inf"}},
};

TEST_P(EightBitRefused, NamesWhatIsWrong) {
  std::fill(std::begin(g_scale), std::end(g_scale), 1.0f);
  std::vector<uint8_t> codes(2 * 20 * 4 * 16, 0x38);
  std::vector<float> o(codes.size(), 7);
  const int64_t q[] = {2, 20, 4, 16}, kv[] = {2, 20, 2, 16}, heads[] = {2, 4};
  fa3_forward_args a{};
  a.struct_size = sizeof a;
  a.q = fa3_dense(codes.data(), FA3_F8_E4M3, 4, q);
  a.k = a.v = fa3_dense(codes.data(), FA3_F8_E4M3, 4, kv);
  a.o = fa3_dense(o.data(), FA3_F32, 4, q);
  a.q_scale = fa3_dense(g_scale, FA3_F32, 2, heads);
  const auto context = kit::make_context();
  ASSERT_EQ(fa3_forward(context.get(), &a, nullptr), FA3_OK) << fa3_last_error();
  std::fill(o.begin(), o.end(), 7.0f);
  GetParam().change(a);
  EXPECT_EQ(fa3_forward(context.get(), &a, nullptr), GetParam().status);
  for (const std::string& text : GetParam().says) EXPECT_THAT(fa3_last_error(), HasSubstr(text));
  EXPECT_EQ(std::set<float>(o.begin(), o.end()), std::set<float>{7});
}

INSTANTIATE_TEST_SUITE_P(Calls, EightBitRefused, testing::ValuesIn(kRefused),
                         [](const auto& info) { return info.param.name; });

TEST(EightBitBackward, IsRefused) {
  std::vector<uint8_t> codes(64, 0x38);
  std::vector<float> f(64, 1);
  const int64_t shape[] = {1, 2, 1, 16}, lse[] = {1, 1, 2};
  fa3_backward_args a{};
  a.struct_size = sizeof a;
  a.q = a.k = a.v = fa3_dense(codes.data(), FA3_F8_E4M3, 4, shape);
  a.o = a.dout = fa3_dense(f.data(), FA3_F32, 4, shape);
  a.lse = fa3_dense(f.data(), FA3_F32, 3, lse);
  EXPECT_EQ(fa3_backward(kit::make_context().get(), &a, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("no gradient"));
}

}  // namespace
}  // namespace fa3
