// SPDX-License-Identifier: BSD-3-Clause
// compare.cpp — the tolerance rule, and the reference runs that it needs.
#include "tools/verify/compare.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include "tools/verify/fields.h"

namespace fa3::verify {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string where_text(const Index& index, int rank) {
  return fmt::format("[{}]", fmt::join(index.begin(), index.begin() + rank, ", "));
}

// Whether one element is as it should be. error: how far off, Inf or NaN in the wrong place.
bool judge(double ours, double fp64, double bound, double max_finite, double* error) {
  *error = std::abs(ours - fp64);
  if (std::isnan(fp64) || std::isinf(fp64)) {
    const bool same = std::isnan(fp64) ? std::isnan(ours) : ours == fp64;
    if (same) *error = 0;
    return same;
  }
  // A result at the end of the type's range may round to Inf, and where the bound exceeds the range
  // to that of either sign.
  const bool one_sign = ours * fp64 > 0 || bound < kInf;
  if (std::isinf(ours) && one_sign && std::copysign(1, ours) * fp64 + bound >= max_finite) {
    *error = 0;
    return true;
  }
  return std::isfinite(ours) && *error <= bound;
}

// n elements at the same position of four tensors.
struct RowView {
  const std::byte* at;
  int32_t dtype;

  double operator[](int64_t c) const { return decode(dtype, at + c * element_bytes(dtype)); }
};

RowView row_view(const fa3_tensor& t, const Index& index) {
  int64_t offset = 0;
  for (int d = 0; d < t.rank; ++d) offset += index[d] * t.stride[d];
  return {static_cast<const std::byte*>(t.data) + offset * element_bytes(t.dtype), t.dtype};
}

// From the largest naive error and spread of elements [begin, end). Where the reference is Inf or
// NaN there is nothing to bound; a spread that is so elsewhere has overflowed: there is no bound.
double bound_of(const RowView& fp64, const RowView& naive, const RowView& spread, int64_t begin,
                int64_t end, int32_t out_dtype) {
  double naive_error = 0, largest_spread = 0;
  for (int64_t c = begin; c < end; ++c) {
    const double error = std::abs(naive[c] - fp64[c]);
    if (std::isfinite(error)) naive_error = std::max(naive_error, error);
    if (!std::isfinite(fp64[c])) continue;
    if (!std::isfinite(spread[c])) return kInf;
    largest_spread = std::max(largest_spread, spread[c]);
  }
  const double factor = end - begin < 64 ? 2 * kFloor : kFloor;
  if (naive_error == 0 && largest_spread == 0) return 0;  // an empty row is exact
  return 2 * naive_error + factor * largest_spread + min_normal(out_dtype);
}

}  // namespace

OutputResult compare_output(const std::string& name, const fa3_tensor& ours, const fa3_tensor& fp64,
                            const Estimate& naive) {
  OutputResult result;
  result.name = name;
  const int last = ours.rank - 1;
  const int64_t n = ours.rank == 0 ? 0 : ours.shape[last];
  const int64_t row_elements =
      name == "lse" || name == "max_logit" ? 1 : n;  // elements judged by one bound
  const double largest = ours.rank == 0 ? 0 : max_finite(ours.dtype);
  double worst = -1, bounds = 0, values = 0;  // sums of squares, of bounds and of the reference
  bool finite = false, nan = false;           // what the reference has
  for_each_row(ours, [&](const Index& start, void*) {
    const RowView x = row_view(ours, start), y = row_view(fp64, start);
    const RowView z = row_view(naive.value.view, start), s = row_view(naive.spread.view, start);
    double bound = 0;
    for (int64_t c = 0; c < n; ++c) {
      if (c % row_elements == 0)
        bound = bound_of(y, z, s, c, std::min(c + row_elements, n), ours.dtype);
      // Scores that overflow FP32 may make anything of a row, as they do of the naive one. The
      // reference's LSE, rounded to FP32, is Inf then.
      const bool no_bound = bound == kInf || (name == "lse" && y[c] == kInf);
      const bool overflowed = no_bound && std::isnan(z[c]);
      if (overflowed) bounds = kInf;
      double error = 0;
      const bool ok = overflowed || judge(x[c], y[c], bound, largest, &error);
      result.ok = result.ok && ok;
      if (std::isfinite(y[c])) {
        bounds += bound * bound;
        values += y[c] * y[c];
        finite = true;
      }
      nan = nan || std::isnan(y[c]);
      const double closeness = error == 0                  ? 0
                               : bound > 0 && error < kInf ? error / bound
                                                           : kInf;  // also when error is NaN
      if (!(closeness > worst)) continue;
      worst = closeness;
      Index at = start;
      at[last] = c;
      result.max_err = error;
      result.bound = bound;
      result.where = where_text(at, ours.rank);
      result.ours = x[c];
      result.reference = y[c];
    }
  });
  if (values > 0 || bounds == kInf) result.width = std::sqrt(bounds / values);
  if (nan && !finite) result.width = std::numeric_limits<double>::quiet_NaN();
  return result;
}

namespace {

struct ContextDeleter {
  void operator()(fa3_context* context) const { fa3_context_destroy(context); }
};
using Context = std::unique_ptr<fa3_context, ContextDeleter>;

void require(fa3_status status) {
  if (status == FA3_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != FA3_OK)
    throw std::runtime_error(fmt::format("verify: the reference failed: {}: {}",
                                         fa3_status_name(status), fa3_last_error()));
}

// parallel_for on threads of its own. oneTBB would do, but ThreadSanitizer cannot see into it.
void on_threads(void*, int64_t count, void (*body)(void*, int64_t), void* body_context) {
  std::vector<std::thread> threads;
  int64_t started = 1;
  try {
    for (; started < count; ++started) threads.emplace_back(body, body_context, started);
  } catch (const std::exception&) {  // no more available: this one does their work
  }
  for (int64_t i = started; i < count; ++i) body(body_context, i);
  body(body_context, 0);
  for (std::thread& thread : threads) thread.join();
}

Context reference_context() {
  fa3_context_options options{};
  options.struct_size = sizeof options;
  options.backend = FA3_BACKEND_REFERENCE;
  options.parallel_for = on_threads;
  fa3_context* context = nullptr;
  require(fa3_context_create(&options, &context));
  return Context(context);
}

// A dense F32 tensor of the same shape; absent when t is.
Tensor f32_like(const fa3_tensor& t) {
  if (t.rank == 0) return {};
  return make_tensor(FA3_F32, std::vector<int64_t>(t.shape, t.shape + t.rank));
}

// Optional tensors without data are absent, as in fa3_forward and fa3_backward, but for those that
// need none.
template <class Args>
Args without_absent(Args args) {
  for_each_tensor(args, [](const fa3_field& f, fa3_tensor& t) {
    if (is_optional(f) && t.data == nullptr && element_count(t) > 0) t = {};
  });
  return args;
}

// Each output compared with those of the reference and of `estimate`.
template <class Args, class Run, class Estimate>
std::vector<OutputResult> compare(const Args& given, Run run, Estimate estimate) {
  const Args args = without_absent(given);
  Args exact = args;
  std::vector<Tensor> results;  // what `exact` is a view of
  for_each_tensor(exact, [&](const fa3_field& f, fa3_tensor& t) {
    if (is_output(f)) t = results.emplace_back(f32_like(t)).view;
  });
  require(run(reference_context().get(), &exact, nullptr));
  const auto naive = estimate(args);
  std::vector<OutputResult> compared;
  for_each_tensor(args, [&](const fa3_field& f, const fa3_tensor& t) {
    if (is_output(f) && t.rank != 0)
      compared.push_back(
          compare_output(f.name, t, member<const fa3_tensor>(exact, f), naive.of(f.name)));
  });
  return compared;
}

}  // namespace

std::vector<OutputResult> compare_forward(const fa3_forward_args& args) {
  return compare(args, fa3_forward, naive_forward);
}

std::vector<OutputResult> compare_backward(const fa3_backward_args& args) {
  return compare(args, fa3_backward, naive_backward);
}

std::string to_text(const OutputResult& r) {
  if (r.where.empty()) return fmt::format("{}: ok, no elements", r.name);
  if (r.ok)
    return fmt::format("{}: ok, error {:.3g} of {:.3g} allowed at {}", r.name, r.max_err, r.bound,
                       r.where);
  return fmt::format("{}: error {:.3g} exceeds {:.3g} at {}: ours {:.9g}, fp64 {:.9g}", r.name,
                     r.max_err, r.bound, r.where, r.ours, r.reference);
}

}  // namespace fa3::verify
