// SPDX-License-Identifier: BSD-3-Clause
// sink_gradient.cpp — dsinks: of each head the sum over its rows, in their order and in FP64.
#include "backend/cpu/sink_gradient.h"

#include <algorithm>

#include "backend/cpu/sink.h"

namespace fa3::cpu {
namespace {

constexpr int kRows = 64;  // whose Σ O·dO is made at a time

// Of the rows of one sequence.
double sum_of(const Head& head, int64_t h, double sink) {
  const Backward& run = head.run;
  const Problem& p = run.problem;
  double sum = 0;
  for (int64_t first = 0; first < head.len.q; first += kRows) {
    const int rows = static_cast<int>(min(head.len.q - first, kRows));
    float products[kRows];
    run.kernels.row_dot(head.rows(kO, first, h, rows), head.rows(kDout, first, h, rows), products);
    for (int i = 0; i < rows; ++i) {
      const auto of_row = [&](TensorId id) {
        return double{*element<float>(p.layout[id], run.buffers.data[id], head.b, head.q_seq.begin,
                                      first + i, h)};
      };
      const double delta = products[i] - (run.wants(kDlse) ? of_row(kDlse) : 0);
      sum += fa3::sink_gradient(of_row(kLse), sink, delta);
    }
  }
  return sum;
}

}  // namespace

int64_t sink_gradient_tasks(const Problem& p) {
  return p.layout[kDsinks].present() ? p.heads_q : 0;
}

void sink_gradient(const Backward& run, const Executor& executor, Progress progress) {
  const Problem& p = run.problem;
  executor.run(
      p.heads_q,
      [&](const TaskContext& task) {
        const int64_t h = task.index;
        const double sink = sink_of(p, run.buffers, h);
        double sum = 0;
        for (int64_t b = 0; b < p.batch && !task.stopped(); ++b)
          sum += sum_of(Head(run, b * p.heads_kv + h / p.group_size()), h, sink);
        store_sink_gradient(p, run.buffers, h, sum);
      },
      progress);
}

}  // namespace fa3::cpu
