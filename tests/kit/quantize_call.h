// SPDX-License-Identifier: BSD-3-Clause
// quantize_call.h — calls of fa3_quantize with memory of their own, and what a result owes to the
// FP64 reference.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/kit/property.h"

namespace fa3::kit {

// One call: what it is made of, and memory for it.
struct QuantizeCall {
  int64_t batch = 1, seqlen = 7, heads = 2, dim = 16;
  int64_t max_seqlen = 0;                      // varlen: the bound that is given; 0 = none
  std::vector<int32_t> cu, seqused, position;  // none = dense, all rows, from 0
  fa3_dtype in = FA3_F32, out = FA3_F8_E4M3, table = FA3_F32;
  enum Scales { kTensor, kHead, kToken, kBlocks } scales = kToken;
  int32_t rows = 0, cols = 0;  // of kBlocks
  int32_t hadamard = 0, rotary_dim = 0, rotary_layout = FA3_ROTARY_HALVES;
  bool offset = false;
  uint64_t seed = 1;

  std::vector<uint8_t> x, codes, cosine, sine;
  std::vector<float> scale, mean;

  int64_t rows_of(int64_t b) const {
    const auto u = static_cast<size_t>(b);
    if (!seqused.empty()) return seqused[u];
    return cu.empty() ? seqlen : cu[u + 1] - cu[u];
  }
  int64_t tokens() const { return cu.empty() ? batch * seqlen : seqlen; }
  int64_t positions() const {
    return seqlen + (position.empty() ? 0 : *std::max_element(position.begin(), position.end()));
  }

  // x is normal, with an element in 50 ten times as large.
  void fill() {
    std::mt19937 random(static_cast<uint32_t>(seed) + 3);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<uint8_t>& to, fa3_dtype type, int64_t count, auto&& value) {
      const auto bytes = static_cast<size_t>(verify::element_bytes(type));
      to.resize(static_cast<size_t>(count) * bytes);
      for (int64_t i = 0; i < count; ++i)
        verify::encode(type, value(i), &to[static_cast<size_t>(i) * bytes]);
    };
    fill(x, in, tokens() * heads * dim,
         [&](int64_t) { return normal(random) * (random() % 50 == 0 ? 10 : 1); });
    const int64_t half = rotary_dim / 2;
    const auto angle = [&](int64_t i) {
      return static_cast<double>(i / half) * std::pow(1e-4, static_cast<double>(i % half) / half);
    };
    if (half == 0) return;
    fill(cosine, table, positions() * half, [&](int64_t i) { return std::cos(angle(i)); });
    fill(sine, table, positions() * half, [&](int64_t i) { return std::sin(angle(i)); });
  }

  std::vector<int64_t> scale_shape() const {
    const auto blocks = [](int64_t n, int64_t size) {
      return size == 0 ? 1 : (n + size - 1) / size;
    };
    if (scales == kTensor) return {1};
    if (scales == kHead) return {batch, heads};
    if (scales == kToken && !cu.empty()) return {seqlen, heads};
    if (scales == kToken) return {batch, heads, seqlen};
    return {batch, heads, blocks(seqlen, rows), blocks(dim, cols)};
  }

  // Outputs full of what nobody writes.
  fa3_quantize_args args() {
    const auto dense = [](const void* data, fa3_dtype type, const std::vector<int64_t>& shape) {
      return fa3_dense(data, type, static_cast<int32_t>(shape.size()), shape.data());
    };
    const std::vector<int64_t> of_x = cu.empty() ? std::vector<int64_t>{batch, seqlen, heads, dim}
                                                 : std::vector<int64_t>{seqlen, heads, dim};
    const std::vector<int64_t> of_scale = scale_shape(), tables{positions(), rotary_dim / 2};
    codes.assign(static_cast<size_t>(tokens() * heads * dim), 0x55);
    scale.assign(static_cast<size_t>(std::accumulate(of_scale.begin(), of_scale.end(), int64_t{1},
                                                     std::multiplies<int64_t>())),
                 -7);
    mean.assign(static_cast<size_t>(batch * heads * dim), -7);
    fa3_quantize_args a{};
    a.struct_size = sizeof a;
    a.x = dense(x.data(), in, of_x);
    a.codes = dense(codes.data(), out, of_x);
    a.scale = dense(scale.data(), FA3_F32, of_scale);
    if (offset) a.offset = dense(mean.data(), FA3_F32, {batch, heads, dim});
    if (!cu.empty()) a.cu_seqlens = dense(cu.data(), FA3_I32, {batch + 1});
    a.max_seqlen = max_seqlen;
    if (!seqused.empty()) a.seqused = dense(seqused.data(), FA3_I32, {batch});
    if (rotary_dim > 0) {
      a.rotary_cos = dense(cosine.data(), table, tables);
      a.rotary_sin = dense(sine.data(), table, tables);
      if (!position.empty()) a.rotary_position = dense(position.data(), FA3_I32, {batch});
    }
    if (scales == kToken) a.block = {1, 0};
    if (scales == kBlocks) a.block = {rows, cols};
    a.rotary_layout = rotary_layout;
    a.hadamard = hadamard;
    a.seed = seed;
    return a;
  }

  void run(fa3_context* context) {
    const fa3_quantize_args a = args();
    ASSERT_EQ(fa3_quantize(context, &a, nullptr), FA3_OK) << fa3_last_error();
  }

  double code(int64_t token, int64_t head, int64_t c) const {
    const uint8_t* const at = &codes[static_cast<size_t>((token * heads + head) * dim + c)];
    return out == FA3_I8 ? static_cast<int8_t>(*at) : verify::decode(out, at);
  }
  // Of dense tensors with scales by token or head.
  double value(int64_t token, int64_t head, int64_t c) const {
    const int64_t b = token / seqlen, i = token % seqlen, of = b * heads + head;
    const int64_t at = scales == kToken ? of * seqlen + i : scales == kHead ? of : 0;
    return code(token, head, c) * static_cast<double>(scale[static_cast<size_t>(at)]) +
           (offset ? static_cast<double>(mean[static_cast<size_t>(of * dim + c)]) : 0);
  }
};

inline std::ostream& operator<<(std::ostream& out, const QuantizeCall& c) {
  return out << fmt::format(
             "batch {} seqlen {} heads {} dim {} cu {} used {} pos {} in {} out {} scales {} block "
             "{} {} hadamard {} rotary {} {} offset {} seed {}",
             c.batch, c.seqlen, c.heads, c.dim, fmt::join(c.cu, ","), fmt::join(c.seqused, ","),
             fmt::join(c.position, ","), int{c.in}, int{c.out}, int{c.scales}, c.rows, c.cols,
             c.hadamard, c.rotary_dim, c.rotary_layout, c.offset, c.seed);
}

inline Context reference() {
  fa3_context_options options = default_options();
  options.backend = FA3_BACKEND_REFERENCE;
  return make_context(options);
}

// Codes that were compared, and those that are another one's neighbour.
struct CodeCount {
  int64_t all = 0, off = 0;
};

// Expects the results of a call that has run to be the reference's: scales within rounding of FP32
// sums; codes the same, but where a value lies beside the middle of two they may be neighbours.
inline void expect_as_reference(const QuantizeCall& c, CodeCount& count) {
  QuantizeCall expected = c;
  expected.run(reference().get());
  // Roundings of a value before it is divided: a level of butterflies, a rotation, a difference.
  const double roundings = (c.hadamard > 0 ? 2 + std::log2(c.hadamard) : 0) +
                           (c.rotary_dim > 0 ? 3 : 0) + (c.offset ? 8 : 0);
  constexpr double kLargest = 50;  // of the elements, about
  const double most = c.out == FA3_I8 ? 127 : 448;
  for (size_t i = 0; i < c.scale.size(); ++i) {
    const double error = std::fabs(double{c.scale[i]} - double{expected.scale[i]});
    if (!(error <= 0x1p-23 * double{expected.scale[i]} + roundings * 0x1p-24 * kLargest / most))
      RC_FAIL(fmt::format("scale {} is {}, not {}", i, c.scale[i], expected.scale[i]));
  }
  for (size_t i = 0; c.offset && i < c.mean.size(); ++i)
    if (!(std::fabs(double{c.mean[i]} - double{expected.mean[i]}) <= 20 * 0x1p-21))
      RC_FAIL(fmt::format("mean {} is {}, not {}", i, c.mean[i], expected.mean[i]));
  count.all += static_cast<int64_t>(c.codes.size());
  for (size_t i = 0; i < c.codes.size(); ++i) {
    if (c.codes[i] == expected.codes[i]) continue;
    ++count.off;
    const int apart = std::abs(int{static_cast<int8_t>(c.codes[i])} -
                               int{static_cast<int8_t>(expected.codes[i])});
    const bool zeros = c.out == FA3_F8_E4M3 && ((c.codes[i] | expected.codes[i]) & 0x7f) == 0;
    const bool about_zero =  // −1 and +0 of E4M3
        c.out == FA3_F8_E4M3 && (c.codes[i] & 0x7f) + (expected.codes[i] & 0x7f) <= 1;
    if (apart > 1 && !zeros && !about_zero)
      RC_FAIL(fmt::format("code {} is {}, not {}", i, c.codes[i], expected.codes[i]));
  }
}

// How many may be: few.
inline void expect_few_off(const CodeCount& count) {
  EXPECT_LE(static_cast<double>(count.off), 1e-3 * static_cast<double>(count.all)) << count.all;
}

}  // namespace fa3::kit
