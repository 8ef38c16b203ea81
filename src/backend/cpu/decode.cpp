// SPDX-License-Identifier: BSD-3-Clause
// decode.cpp — codes, scales and offsets → FP32.
#include "backend/cpu/decode.h"

#include <cmath>

#include "core/check_scales.h"
#include "core/dtype.h"
#include "plan/cpu/cpu_plan.h"

namespace fa3::cpu {
namespace {

Layout dense_q(const Problem& p) {
  const int64_t row = p.heads_q * p.head_dim_qk;
  return {FA3_F32, p.q.varlen ? 0 : p.q.rows * row, row, p.head_dim_qk};
}

int64_t elements_of_q(const Problem& p) {
  return p.entries_of(kQ) * p.q.rows * p.heads_q * p.head_dim_qk;
}

template <class T>
void decode_row(const T* in, const RowScales& scales, int64_t columns, float* out) {
  for (int64_t c = 0; c < columns; ++c)
    out[c] = std::fma(to_float(in[c]), scales.scale_of(c), scales.offset_of(c));
}

}  // namespace

void decode_row(fa3_dtype dtype, const void* data, int64_t at, const RowScales& scales,
                int64_t columns, float* out) {
  if (dtype == FA3_F8_E4M3) decode_row(static_cast<const F8E4m3*>(data) + at, scales, columns, out);
  if (dtype == FA3_I8) decode_row(static_cast<const int8_t*>(data) + at, scales, columns, out);
}

Problem decoded(const Problem& problem) {
  Problem p = problem;
  p.layout[kQ] = dense_q(problem);
  p.layout[kQScale] = {};
  p.scale_block[kQ] = {};
  return p;
}

size_t decoded_bytes(const Problem& p) {
  Arena arena(nullptr);
  arena.take<float>(elements_of_q(p));
  return arena.used();
}

Buffers decode(const Problem& p, const Buffers& buffers, std::byte* workspace,
               const Executor& executor) {
  Buffers x = buffers;
  Arena arena(workspace);
  x.data[kQ] = arena.take<float>(elements_of_q(p));
  x.data[kQScale] = nullptr;
  const Layout &from = p.layout[kQ], into = dense_q(p);
  executor.run(p.batch * p.heads_q, [&](const TaskContext& task) {
    const int64_t b = task.index / p.heads_q, head = task.index % p.heads_q;
    const Sequence s = q_sequence(p, buffers, b);
    for (int64_t i = 0; i < s.len; ++i) {
      const int64_t row = s.begin + i;
      decode_row(from.dtype, buffers.data[kQ], b * from.batch + row * from.row + head * from.head,
                 scales_of(p, buffers, kQ, b, s.begin, i, head), p.head_dim_qk,
                 x.out<float>(kQ) + b * into.batch + row * into.row + head * into.head);
    }
  });
  return x;
}

}  // namespace fa3::cpu
