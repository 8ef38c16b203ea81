// SPDX-License-Identifier: BSD-3-Clause
// combine.cpp — tensors of fa3_combine, and its formula.
#include "tools/verify/combine.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "tools/verify/problem.h"

namespace fa3::verify {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<int64_t> of_parts(int64_t parts, std::vector<int64_t> shape) {
  shape.insert(shape.begin(), parts);
  return shape;
}

std::vector<int64_t> shape_of(const fa3_tensor& t) { return {t.shape, t.shape + t.rank}; }

Tensor make_lse(std::vector<int64_t> shape, bool by_rows) {
  if (!by_rows) return make_tensor(FA3_F32, shape);
  const size_t last = shape.size() - 1;
  std::swap(shape[last], shape[last - 1]);
  Tensor t = make_tensor(FA3_F32, shape);
  std::swap(t.view.shape[last], t.view.shape[last - 1]);
  std::swap(t.view.stride[last], t.view.stride[last - 1]);
  return t;
}

Index index_of(bool packed, int64_t part, int64_t b, std::initializer_list<int64_t> rest) {
  Index at{};
  size_t d = 0;
  if (part >= 0) at[d++] = part;
  if (!packed) at[d++] = b;
  for (const int64_t i : rest) at[d++] = i;
  return at;
}

// A row in FP64 and in FP32, and Σ wᵢ·|Oᵢ| of its columns.
struct Row {
  std::vector<double> o, size, naive;
  double lse = -kInf, naive_lse = -kInf;
};

Row row_of(const fa3_combine_args& a, int64_t b, int64_t i, int64_t h) {
  const bool packed = a.o_parts.rank == 4;
  const int64_t parts = a.o_parts.shape[0], dim = a.o.shape[a.o.rank - 1];
  const auto columns = static_cast<size_t>(dim);
  Row row{std::vector<double>(columns), std::vector<double>(columns), std::vector<double>(columns)};
  std::vector<double> lse;
  for (int64_t part = 0; part < parts; ++part)
    lse.push_back(get(a.lse_parts, index_of(packed, part, b, {h, i})));
  const double sink = a.sinks.rank != 0 ? get(a.sinks, {h}) : -kInf;
  double most = sink;
  for (const double x : lse) most = std::max(most, x);
  if (most == -kInf) return row;
  bool any = false;  // has keys
  double sum = std::exp(sink - most);
  float naive_sum = std::exp(static_cast<float>(sink - most));
  std::vector<float> naive(columns);
  for (int64_t part = 0; part < parts; ++part) {
    const double of_part = lse[static_cast<size_t>(part)];
    if (of_part == -kInf) continue;
    const double weight = std::exp(of_part - most);
    float in_f32 = std::exp(static_cast<float>(of_part) - static_cast<float>(most));
    if (in_f32 < std::numeric_limits<float>::min()) in_f32 = 0;  // a GPU has no subnormal weights
    sum += weight, naive_sum += in_f32;
    any = true;
    for (size_t c = 0; c < columns; ++c) {
      const auto column = static_cast<int64_t>(c);
      const double x = get(a.o_parts, index_of(packed, part, b, {i, h, column}));
      row.o[c] += weight * x, row.size[c] += weight * std::fabs(x);
      naive[c] += in_f32 * static_cast<float>(x);
    }
  }
  for (size_t c = 0; any && c < columns; ++c) {
    row.o[c] /= sum, row.size[c] /= sum;
    row.naive[c] = round_to(a.o.dtype, double{naive[c] / naive_sum});
  }
  row.lse = most + std::log(sum);
  row.naive_lse = double{static_cast<float>(most) + std::log(naive_sum)};
  return row;
}

// f(b, i, h) for each row of O.
template <class F>
void for_each_row_of(const fa3_tensor& o, const F& f) {
  const int row = o.rank - 3;
  for (int64_t b = 0; b < (row == 0 ? 1 : o.shape[0]); ++b)
    for (int64_t i = 0; i < o.shape[row]; ++i)
      for (int64_t h = 0; h < o.shape[row + 1]; ++h) f(b, i, h);
}

// FP64 results, and what to compare with them.
struct Expected {
  Tensor exact;
  Estimate naive;

  explicit Expected(const fa3_tensor& like) {
    for (Tensor* t : {&exact, &naive.value, &naive.spread})
      *t = make_tensor(FA3_F32, shape_of(like));
  }
  void set(const Index& at, double value, double in_f32, double spread) {
    verify::set(exact.view, at, value);
    verify::set(naive.value.view, at, in_f32);
    verify::set(naive.spread.view, at, spread);
  }
};

}  // namespace

const Tensor* CombineTensors::find(const std::string& name) const {
  if (name == "o_parts") return &o_parts;
  if (name == "lse_parts") return &lse_parts;
  if (name == "sinks" && sinks.storage) return &sinks;
  return name == "o" ? &o : name == "lse" ? &lse : nullptr;
}

Index combine_o_index(const CombineProblem& p, int64_t part, int64_t b, int64_t i, int64_t h,
                      int64_t column) {
  return index_of(p.packed, part, b, {i, h, column});
}
Index combine_lse_index(const CombineProblem& p, int64_t part, int64_t b, int64_t i, int64_t h) {
  return index_of(p.packed, part, b, {h, i});
}

CombineTensors make_combine(const CombineProblem& p) {
  std::vector<int64_t> shape{p.seqlen, p.heads, p.dim}, lse{p.heads, p.seqlen};
  if (!p.packed) shape.insert(shape.begin(), p.batch), lse.insert(lse.begin(), p.batch);
  const MemoryOrder memory{p.order, p.padding, {}, p.alignment};
  MemoryOrder below = memory;
  if (!p.order.empty()) {
    for (int& d : below.order) ++d;
    below.order.insert(below.order.begin(), 0);
  }
  CombineTensors t{make_tensor(p.in, of_parts(p.parts, shape), below),
                   make_lse(of_parts(p.parts, lse), p.by_rows),
                   make_tensor(p.out, shape, memory),
                   make_lse(lse, p.by_rows),
                   {}};
  Random random(p.seed);
  if (p.sink_dtype != 0) {
    t.sinks = make_tensor(p.sink_dtype, {p.heads});
    for (int64_t h = 0; h < p.heads; ++h)
      set(t.sinks.view, {h}, h % 4 == 3 ? -kInf : p.shift + p.spread * (1 + random.normal()));
  }
  const double nowhere[] = {std::nan(""), kInf, -1e30, 0};
  for_each_row_of(t.o.view, [&](int64_t b, int64_t i, int64_t h) {
    const bool none = random.uniform() < p.hidden / 4;
    for (int64_t part = 0; part < p.parts; ++part) {
      const bool has_keys = !none && !(random.uniform() < p.hidden);
      set(t.lse_parts.view, combine_lse_index(p, part, b, i, h),
          has_keys ? p.shift + p.spread * random.normal() : -kInf);
      for (int64_t c = 0; c < p.dim; ++c)
        set(t.o_parts.view, combine_o_index(p, part, b, i, h, c),
            has_keys ? random.normal() : nowhere[random.bits() % 4]);
    }
  });
  return t;
}

fa3_combine_args combine_args(const CombineProblem& problem, const CombineTensors& tensors) {
  fa3_combine_args a{};
  a.struct_size = sizeof a;
  a.o_parts = tensors.o_parts.view, a.lse_parts = tensors.lse_parts.view, a.o = tensors.o.view;
  if (problem.wants_lse) a.lse = tensors.lse.view;
  if (problem.sink_dtype != 0) a.sinks = tensors.sinks.view;
  return a;
}

std::vector<OutputResult> compare_combine(const fa3_combine_args& args) {
  const bool packed = args.o.rank == 3, has_lse = args.lse.rank > 0;
  Expected o(args.o), lse(has_lse ? args.lse : args.o);
  const Tensor ours = make_tensor(FA3_F32, shape_of(lse.exact.view));  // compared row by row
  const double rounding = unit_roundoff(args.o.dtype);
  for_each_row_of(args.o, [&](int64_t b, int64_t i, int64_t h) {
    const Row row = row_of(args, b, i, h);
    for (size_t c = 0; c < row.o.size(); ++c)
      o.set(index_of(packed, -1, b, {i, h, static_cast<int64_t>(c)}), row.o[c], row.naive[c],
            std::hypot(0x1p-22 * row.size[c], rounding * row.o[c]));
    if (!has_lse) return;
    const double unit = row.lse == -kInf ? 0 : 0x1p-23 * std::max(1.0, std::fabs(row.lse));
    const Index at = index_of(packed, -1, b, {h, i});
    lse.set(at, row.lse, row.naive_lse, unit);
    set(ours.view, at, get(args.lse, at));
  });
  std::vector<OutputResult> results{compare_output("o", args.o, o.exact.view, o.naive)};
  if (has_lse) results.push_back(compare_output("lse", ours.view, lse.exact.view, lse.naive));
  return results;
}

}  // namespace fa3::verify
