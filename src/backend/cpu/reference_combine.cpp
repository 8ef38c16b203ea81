// SPDX-License-Identifier: BSD-3-Clause
// reference_combine.cpp — the formula of combine.h, term by term.
#include "backend/cpu/reference_combine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/reference_rows.h"
#include "backend/cpu/sink.h"

namespace fa3::reference {
namespace {

constexpr int64_t kMaxColumns = 512;
constexpr double kNegInf = -std::numeric_limits<double>::infinity();

// Row i of head h of batch entry b.
void merge(const Problem& p, const Buffers& x, int64_t b, int64_t i, int64_t h) {
  const auto at = [&](TensorId id, int64_t part) {
    const Layout& layout = p.layout[id];
    return part * layout.part + b * layout.batch + i * layout.row + h * layout.head;
  };
  const auto lse_of = [&](int64_t part) {
    return double{x.in<float>(kLseParts)[at(kLseParts, part)]};
  };
  const double sink = sink_of(p, x, h);
  double most = sink, sum = 0;
  std::array<double, kMaxColumns> row{};
  for (int64_t part = 0; part < p.parts; ++part) most = std::max(most, lse_of(part));
  if (sink != kNegInf) sum = std::exp(sink - most);
  bool any = false;  // sees a key
  for (int64_t part = 0; part < p.parts; ++part) {
    const double lse = lse_of(part);
    if (lse == kNegInf) continue;
    const double weight = std::exp(lse - most);
    sum += weight;
    any = true;
    for (int64_t c = 0; c < p.head_dim_v; ++c)
      row[c] += weight * element(p, x, kOParts, at(kOParts, part) + c);
  }
  for (int64_t c = 0; c < p.head_dim_v; ++c) row[c] = any ? row[c] / sum : 0;
  store(p, x, kMergedO, at(kMergedO, 0), p.head_dim_v, row.data());
  if (p.layout[kMergedLse].present())
    x.out<float>(kMergedLse)[at(kMergedLse, 0)] =
        static_cast<float>(most == kNegInf ? kNegInf : most + std::log(sum));
}

}  // namespace

void combine(const Problem& p, const Buffers& x, const Executor& executor) {
  executor.run(p.batch * p.heads_q, [&](const TaskContext& task) {
    const int64_t b = task.index / p.heads_q, h = task.index % p.heads_q;
    for (int64_t i = 0; i < p.q.rows; ++i) merge(p, x, b, i, h);
  });
}

}  // namespace fa3::reference
