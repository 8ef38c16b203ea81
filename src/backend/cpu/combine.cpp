// SPDX-License-Identifier: BSD-3-Clause
// combine.cpp — rows of parts → rows of O and LSE. A row's parts that count are the rows of a
// matrix, and their weights times that matrix are its sum: a step of decode's P·V.
#include "backend/cpu/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/sink.h"
#include "core/dtype.h"
#include "device/types.h"

namespace fa3::cpu {
namespace {

constexpr int kChunk = 256;               // parts whose weights are held at a time
constexpr int64_t kTaskBytes = 64 << 10;  // of parts that a task reads, about
constexpr int64_t kMostRows = 256;        // of a task
constexpr int kMostColumns = 512;
constexpr float kNegInf = -std::numeric_limits<float>::infinity();

class Combiner {
 public:
  Combiner(const Problem& p, const Buffers& x, Isa isa)
      : p_(p), x_(x), kernels_(kernels(isa, p.layout[kOParts].dtype, true)) {}

  int64_t rows() const { return p_.batch * p_.q.rows * p_.heads_q; }

  void merge(int64_t index) const {
    const int64_t head = index % p_.heads_q, of_token = index / p_.heads_q;
    const int64_t row = of_token % p_.q.rows, b = of_token / p_.q.rows;
    const auto at = [&](TensorId id) {
      const Layout& layout = p_.layout[id];
      return b * layout.batch + row * layout.row + head * layout.head;
    };
    alignas(64) float sums[kMostColumns + kMaxLanes] = {};
    const float* const lse = x_.in<float>(kLseParts) + at(kLseParts);
    const double sink = sink_of(p_, x_, head);  // a part without O
    const float most = largest(lse, static_cast<float>(sink));
    bool any = false;
    double sum = sink == kNegInf ? 0 : std::exp(sink - most);
    sum += add(lse, most, at(kOParts), sums, any);
    const float factor = any ? static_cast<float>(1 / sum) : 0.0f;
    const fa3_dtype dtype = p_.layout[kMergedO].dtype;
    kernels_.store_rows(sums, kMostColumns, &factor, 1, static_cast<int>(p_.head_dim_v), dtype,
                        x_.out<std::byte>(kMergedO) + at(kMergedO) * dtype_bytes(dtype), 0);
    if (!p_.layout[kMergedLse].present()) return;
    x_.out<float>(kMergedLse)[at(kMergedLse)] =
        most == kNegInf ? kNegInf : static_cast<float>(most + std::log(sum));
  }

 private:
  // A NaN may be passed over: its weight is NaN all the same.
  float largest(const float* lse, float most) const {
    for (int64_t i = 0; i < p_.parts; ++i) most = std::max(most, lse[i * part_lse()]);
    return most;
  }

  // Adds the parts that count, times their weights, to `sums`; returns the sum of weights, and in
  // `any` whether there are some.
  double add(const float* lse, float most, int64_t first, float* sums, bool& any) const {
    float weight[kChunk];
    int64_t begin[kChunk];
    double sum = 0;
    for (int64_t part = 0; part < p_.parts;) {
      int count = 0;
      for (; part < p_.parts && count < kChunk; ++part) {
        const float of_part = lse[part * part_lse()];
        if (of_part == kNegInf) continue;
        weight[count] = std::exp(of_part - most);
        sum += weight[count];
        begin[count++] = first + part * p_.layout[kOParts].part;
      }
      Rows rows;
      rows.data = x_.data[kOParts];
      rows.dtype = p_.layout[kOParts].dtype;
      rows.rows = count;
      rows.cols = static_cast<int>(p_.head_dim_v);
      rows.begin = begin;
      any = any || count > 0;
      if (count > 0) kernels_.few_add(1, weight, kChunk, rows, sums, kMostColumns);
    }
    return sum;
  }

  int64_t part_lse() const { return p_.layout[kLseParts].part; }

  const Problem& p_;
  const Buffers& x_;
  const Kernels& kernels_;
};

}  // namespace

void combine(const Problem& p, const Buffers& x, Isa isa, const Executor& executor) {
  const Combiner combiner(p, x, isa);
  const int64_t row_bytes = p.parts * p.head_dim_v * dtype_bytes(p.layout[kOParts].dtype);
  const int64_t of_task =
      std::clamp<int64_t>(kTaskBytes / std::max<int64_t>(row_bytes, 1), 1, kMostRows);
  const int64_t rows = combiner.rows();
  executor.run(div_up(rows, of_task), [&](const TaskContext& task) {
    const int64_t last = std::min(rows, (task.index + 1) * of_task);
    for (int64_t i = task.index * of_task; i < last; ++i) combiner.merge(i);
  });
}

}  // namespace fa3::cpu
