// SPDX-License-Identifier: BSD-3-Clause
// combine_call.h — calls of fa3_combine with memory of their own, and what a result owes to the
// formula in FP64: at most twice the error of the same sums in FP32, one after another.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kit/property.h"

namespace fa3::kit {

struct CombineCall {
  int64_t parts = 3, batch = 2, seqlen = 5, heads = 3, dim = 16;
  bool packed = false;  // (parts, seqlen, heads, dim), without a batch
  fa3_dtype in = FA3_F32, out = FA3_F32;
  bool wants_lse = true;
  std::vector<int> order;  // of the dimensions of O in memory, of its parts' outermost; {} = dense
  int64_t padding = 0;     // elements behind a row of O
  int64_t alignment = 16;
  bool by_rows = false;  // LSE as (…, seqlen, heads) in memory
  double hidden = 0.2;   // share of the parts without keys
  double shift = 0;      // of all LSE
  uint32_t seed = 1;

  verify::Tensor o_parts, lse_parts, o, lse;

  double most_error = 0;  // of O, in units of Σ wᵢ·|Oᵢ|; set by expect_right()

  std::vector<int64_t> shape_of_o() const {
    if (packed) return {seqlen, heads, dim};
    return {batch, seqlen, heads, dim};
  }
  std::vector<int64_t> shape_of_lse() const {
    if (packed) return {heads, seqlen};
    return {batch, heads, seqlen};
  }

  void make() {
    const auto with_parts = [&](std::vector<int64_t> shape) {
      shape.insert(shape.begin(), parts);
      return shape;
    };
    verify::MemoryOrder memory{order, padding, {}, alignment}, of_parts = memory;
    if (!order.empty()) {
      for (int& d : of_parts.order) ++d;
      of_parts.order.insert(of_parts.order.begin(), 0);
    }
    o = verify::make_tensor(out, shape_of_o(), memory);
    o_parts = verify::make_tensor(in, with_parts(shape_of_o()), of_parts);
    lse_parts = make_lse(with_parts(shape_of_lse()));
    lse = make_lse(shape_of_lse());
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    const double nowhere[] = {std::nan(""), std::numeric_limits<double>::infinity(), -1e30, 0};
    for_each_row([&](int64_t b, int64_t i, int64_t h) {
      const bool none = uniform(random) < hidden / 4;
      for (int64_t part = 0; part < parts; ++part) {
        const bool has_keys = !none && !(uniform(random) < hidden);
        verify::set(
            lse_parts.view, at_lse(b, i, h, part),
            has_keys ? shift + 3 * normal(random) : -std::numeric_limits<double>::infinity());
        for (int64_t c = 0; c < dim; ++c)
          verify::set(o_parts.view, at_o(b, i, h, c, part),
                      has_keys ? normal(random) : nowhere[random() % 4]);
      }
    });
  }

  fa3_combine_args args() const {
    fa3_combine_args a{};
    a.struct_size = sizeof a;
    a.o_parts = o_parts.view, a.lse_parts = lse_parts.view, a.o = o.view;
    if (wants_lse) a.lse = lse.view;
    return a;
  }

  void run(fa3_context* context) {
    const fa3_combine_args a = args();
    ASSERT_EQ(fa3_combine(context, &a, nullptr), FA3_OK) << fa3_last_error();
  }

  // visit(b, i, h) for each row.
  template <class Visit>
  void for_each_row(Visit&& visit) const {
    for (int64_t b = 0; b < (packed ? 1 : batch); ++b)
      for (int64_t i = 0; i < seqlen; ++i)
        for (int64_t h = 0; h < heads; ++h) visit(b, i, h);
  }

  // Indices; part −1: of the outputs, which have none.
  verify::Index at_o(int64_t b, int64_t i, int64_t h, int64_t c, int64_t part = -1) const {
    return index(part, b, {i, h, c});
  }
  verify::Index at_lse(int64_t b, int64_t i, int64_t h, int64_t part = -1) const {
    return index(part, b, {h, i});
  }

  // The outputs of a call that has run, in a property.
  void expect_right() {
    double most_naive = 0, most_lse = 0, naive_lse = 0;
    most_error = 0;
    for_each_row([&](int64_t b, int64_t i, int64_t h) {
      const Row row = row_of(b, i, h);
      const double lse_got = verify::get(lse.view, at_lse(b, i, h));
      if (wants_lse && row.empty() && !(lse_got == row.lse))
        RC_FAIL(fmt::format("row {} {} {}: LSE {} without keys", b, i, h, lse_got));
      if (wants_lse && !row.empty()) {
        const double unit = std::max(1.0, std::fabs(row.lse));
        most_lse = larger(most_lse, std::fabs(lse_got - row.lse) / unit);
        naive_lse = larger(naive_lse, std::fabs(row.naive_lse - row.lse) / unit);
      }
      for (int64_t c = 0; c < dim; ++c) {
        const auto u = static_cast<size_t>(c);
        const double got = verify::get(o.view, at_o(b, i, h, c));
        if (row.empty()) {
          if (!(got == 0)) RC_FAIL(fmt::format("row {} {} {}: O {} without keys", b, i, h, got));
          continue;
        }
        const double rounding =
            verify::unit_roundoff(out) * std::fabs(row.o[u]) + verify::min_normal(out) * 0x1p-10;
        const double error = std::max(std::fabs(got - row.o[u]) - rounding, 0.0);
        most_error = larger(most_error, got == got ? error / row.size[u] : got);
        most_naive = larger(most_naive, std::fabs(row.naive[u] - row.o[u]) / row.size[u]);
      }
    });
    if (!(most_error <= 2 * most_naive + 0x1p-21))
      RC_FAIL(fmt::format("O: error {}, naive {}", most_error, most_naive));
    if (!(most_lse <= 2 * naive_lse + 0x1p-21))
      RC_FAIL(fmt::format("LSE: error {}, naive {}", most_lse, naive_lse));
    if (!o.storage->guards_intact() || !lse.storage->guards_intact())
      RC_FAIL("something was written between the rows");
  }

 private:
  // What the formula gives in FP64 and in FP32; size: Σ wᵢ·|Oᵢ|.
  struct Row {
    std::vector<double> o, size, naive;
    double lse = -std::numeric_limits<double>::infinity(), naive_lse = lse;

    bool empty() const { return lse == -std::numeric_limits<double>::infinity(); }
  };

  static double larger(double a, double b) { return a != a || a > b ? a : b; }  // NaN above all

  verify::Index index(int64_t part, int64_t b, std::initializer_list<int64_t> rest) const {
    verify::Index at{};
    size_t d = 0;
    if (part >= 0) at[d++] = part;
    if (!packed) at[d++] = b;
    for (const int64_t i : rest) at[d++] = i;
    return at;
  }

  verify::Tensor make_lse(std::vector<int64_t> shape) const {
    if (!by_rows) return verify::make_tensor(FA3_F32, shape);
    const size_t last = shape.size() - 1;
    std::swap(shape[last], shape[last - 1]);
    verify::Tensor t = verify::make_tensor(FA3_F32, shape);
    std::swap(t.view.shape[last], t.view.shape[last - 1]);
    std::swap(t.view.stride[last], t.view.stride[last - 1]);
    return t;
  }

  Row row_of(int64_t b, int64_t i, int64_t h) const {
    Row row;
    row.o.assign(static_cast<size_t>(dim), 0);
    row.size = row.naive = row.o;
    const auto lse_of = [&](int64_t part) {
      return verify::get(lse_parts.view, at_lse(b, i, h, part));
    };
    double most = row.lse;
    for (int64_t part = 0; part < parts; ++part) most = std::max(most, lse_of(part));
    if (most == row.lse) return row;
    double sum = 0;
    float naive_sum = 0;
    std::vector<float> naive(static_cast<size_t>(dim));
    for (int64_t part = 0; part < parts; ++part) {
      if (lse_of(part) == row.lse) continue;
      const double weight = std::exp(lse_of(part) - most);
      const float in_f32 = std::exp(static_cast<float>(lse_of(part)) - static_cast<float>(most));
      sum += weight, naive_sum += in_f32;
      for (int64_t c = 0; c < dim; ++c) {
        const auto u = static_cast<size_t>(c);
        const double x = verify::get(o_parts.view, at_o(b, i, h, c, part));
        row.o[u] += weight * x, row.size[u] += weight * std::fabs(x);
        naive[u] += in_f32 * static_cast<float>(x);
      }
    }
    for (size_t u = 0; u < row.o.size(); ++u) {
      row.o[u] /= sum, row.size[u] /= sum;
      row.size[u] = std::max(row.size[u], 1e-30);
      row.naive[u] = double{naive[u] / naive_sum};
    }
    row.lse = most + std::log(sum);
    row.naive_lse = double{static_cast<float>(most) + std::log(naive_sum)};
    return row;
  }
};

inline std::ostream& operator<<(std::ostream& out, const CombineCall& c) {
  return out << fmt::format(
             "parts {} batch {} seqlen {} heads {} dim {} packed {} in {} out {} lse {} order {} "
             "padding {} alignment {} by_rows {} hidden {} shift {} seed {}",
             c.parts, c.batch, c.seqlen, c.heads, c.dim, c.packed, int{c.in}, int{c.out},
             c.wants_lse, fmt::join(c.order, ","), c.padding, c.alignment, c.by_rows, c.hidden,
             c.shift, c.seed);
}

// most_rows: about how many rows times parts a call may have.
inline rc::Gen<CombineCall> any_combine_call(int64_t most_rows) {
  return rc::gen::exec([most_rows] {
    CombineCall c;
    c.parts = *rc::gen::element<int64_t>(0, 1, 2, 3, 7, 8, 9, 17, 300);
    c.batch = *rc::gen::inRange<int64_t>(1, 4);
    c.heads = *rc::gen::inRange<int64_t>(1, 6);
    const int64_t most =
        std::max<int64_t>(most_rows / (c.batch * c.heads * std::max<int64_t>(c.parts, 1)), 1);
    c.seqlen = *rc::gen::inRange<int64_t>(0, std::min<int64_t>(most, 40) + 1);
    c.dim = *any_head_dim();
    c.packed = *rc::gen::arbitrary<bool>();
    c.in = *rc::gen::element(FA3_F32, FA3_F16, FA3_BF16);
    c.out = *rc::gen::element(FA3_F32, FA3_F16, FA3_BF16);
    c.wants_lse = *rc::gen::inRange(0, 4) != 0;
    if (*rc::gen::arbitrary<bool>()) {
      c.order = c.packed ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1, 2, 3};
      if (*rc::gen::arbitrary<bool>()) std::swap(c.order[0], c.order[1]);
      if (!c.packed && *rc::gen::arbitrary<bool>()) std::swap(c.order[1], c.order[2]);
    }
    c.padding = *rc::gen::element<int64_t>(0, 0, 1, 8);
    c.alignment = *rc::gen::element<int64_t>(0, 4, 16);
    c.by_rows = *rc::gen::arbitrary<bool>();
    c.hidden = *rc::gen::element(0.0, 0.2, 0.9);
    c.shift = *rc::gen::element(0.0, 80.0, -200.0, 1e6, -1e30);
    c.seed = *rc::gen::arbitrary<uint32_t>();
    return c;
  });
}

inline void showValue(const CombineCall& c, std::ostream& os) { os << c; }

}  // namespace fa3::kit
