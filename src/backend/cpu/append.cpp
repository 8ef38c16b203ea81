// SPDX-License-Identifier: BSD-3-Clause
// append.cpp — rows of k_new, v_new and q, one after another: rotated, rounded, and put where they
// belong. A task has some rows of all heads.
#include "backend/cpu/append.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/reference_rows.h"
#include "core/dtype.h"

namespace fa3 {
namespace {

constexpr int64_t kRows = 32;  // of a task

template <class T>
class Appending {
 public:
  Appending(const Problem& p, const Append& plan, const Buffers& x, std::byte* workspace)
      : p_(p),
        x_(x),
        queries_(reinterpret_cast<T*>(workspace + plan.queries)),
        of_queries_(plan.attention.problem.layout[kQ]) {}

  // Row i of sequence b's new keys and values.
  void write_keys(int64_t b, int64_t i) const {
    const Sequence before = kv_sequence(p_, x_, b);
    const int64_t begin = sequence_of(p_, x_, Axis::kNew, b).begin;
    const KeyPlace to = key_place(p_, x_, b, before.begin + before.len + i);
    const int64_t position = first_position(p_, x_, b) + i;
    for (const auto& [id, into] : {std::pair(kKNew, kK), std::pair(kVNew, kV)}) {
      const Layout &from = p_.layout[id], &at = p_.layout[into];
      for (int64_t h = 0; h < p_.heads_kv; ++h)
        write_row(x_.in<T>(id) + b * from.batch + (begin + i) * from.row + h * from.head,
                  id == kKNew, position, p_.columns_of(id),
                  x_.out<T>(into) + to.entry * at.batch + to.row * at.row + h * at.head);
    }
  }

  // Row i of sequence b's queries.
  void rotate_query(int64_t b, int64_t i) const {
    const int64_t row = q_sequence(p_, x_, b).begin + i;
    const int64_t position = first_position(p_, x_, b) + (p_.has_positions() ? i : 0);
    const Layout &from = p_.layout[kQ], &to = of_queries_;
    for (int64_t h = 0; h < p_.heads_q; ++h)
      write_row(x_.in<T>(kQ) + b * from.batch + row * from.row + h * from.head, true, position,
                p_.head_dim_qk, queries_ + b * to.batch + row * to.row + h * to.head);
  }

 private:
  double angle(TensorId id, int64_t position, int64_t i) const {
    return reference::element(p_, x_, id, position * p_.layout[id].row + i);
  }
  void write_row(const T* from, bool rotated, int64_t position, int64_t columns, T* to) const {
    const int64_t half = rotated ? p_.rotation.rotary_dim / 2 : 0;
    for (int64_t i = 0; i < half; ++i) {
      const int64_t a = p_.rotation.rotary_pairs ? 2 * i : i;
      const int64_t b = p_.rotation.rotary_pairs ? 2 * i + 1 : i + half;
      const double cos = angle(kRotaryCos, position, i), sin = angle(kRotarySin, position, i);
      const double u = reference::to_double(from[a]), v = reference::to_double(from[b]);
      to[a] = reference::rounded<T>(u * cos - v * sin);
      to[b] = reference::rounded<T>(v * cos + u * sin);
    }
    std::copy(from + 2 * half, from + columns, to + 2 * half);
  }

  const Problem& p_;
  const Buffers& x_;
  T* const queries_;
  const Layout of_queries_;
};

// Tasks of a sequence that is as long as any may be.
int64_t most_tasks(const SeqAxis& axis) { return (axis.max_seqlen + kRows - 1) / kRows; }

// f(sequence, row) of all rows of an axis that count, in tasks of kRows rows.
template <class F>
void for_each_row(const Problem& p, const Buffers& x, Axis axis, const Executor& executor,
                  const Progress& progress, const F& f) {
  const int64_t chunks = most_tasks(p.along(axis));
  executor.run(
      p.batch * chunks,
      [&](const TaskContext& task) {
        const int64_t b = task.index / chunks, first = task.index % chunks * kRows;
        const int64_t end = std::min(sequence_of(p, x, axis, b).len, first + kRows);
        for (int64_t i = first; i < end; ++i) f(b, i);
      },
      progress);
}

template <class T>
void append_as(const Problem& p, const Append& plan, const Buffers& x, std::byte* workspace,
               const Executor& executor) {
  const Appending<T> rows(p, plan, x, workspace);
  const int64_t of_keys = p.batch * most_tasks(p.fresh);
  const int64_t all = of_keys + (plan.rotates() ? p.batch * most_tasks(p.q) : 0);
  for_each_row(p, x, Axis::kNew, executor, {0, all},
               [&](int64_t b, int64_t i) { rows.write_keys(b, i); });
  if (!plan.rotates()) return;
  for_each_row(p, x, Axis::kQuery, executor, {of_keys, all},
               [&](int64_t b, int64_t i) { rows.rotate_query(b, i); });
}

}  // namespace

void append(const Problem& p, const Append& plan, const Buffers& x, std::byte* workspace,
            const Executor& executor) {
  auto* const lengths = reinterpret_cast<int32_t*>(workspace + plan.lengths);
  for (int64_t b = 0; b < p.batch; ++b)
    lengths[b] = static_cast<int32_t>(kv_sequence_after(p, x, b).len);
  const fa3_dtype dtype = p.layout[kQ].dtype;
  if (dtype == FA3_F32) append_as<float>(p, plan, x, workspace, executor);
  if (dtype == FA3_F16) append_as<F16>(p, plan, x, workspace, executor);
  if (dtype == FA3_BF16) append_as<Bf16>(p, plan, x, workspace, executor);
  if (dtype == FA3_F64) append_as<double>(p, plan, x, workspace, executor);
}

}  // namespace fa3
