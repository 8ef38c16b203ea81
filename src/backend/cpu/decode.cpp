// SPDX-License-Identifier: BSD-3-Clause
// decode.cpp — codes, scales and offsets → FP32.
#include "backend/cpu/decode.h"

#include <cmath>

#include "core/check_scales.h"
#include "core/dtype.h"
#include "plan/cpu/cpu_plan.h"

namespace fa3::cpu {
namespace {

constexpr TensorId kDecoded[] = {kQ, kK, kV};

Layout dense(const Problem& p, TensorId id) {
  const int64_t row = p.heads_of(id) * p.columns_of(id);
  return {FA3_F32, p.axis_of(id).varlen ? 0 : p.axis_of(id).rows * row, row, p.columns_of(id)};
}

int64_t elements(const Problem& p, TensorId id) {
  return p.entries_of(id) * p.axis_of(id).rows * p.heads_of(id) * p.columns_of(id);
}

template <class T>
void decode_row(const T* in, const RowScales& scales, int64_t columns, float* out) {
  for (int64_t c = 0; c < columns; ++c)
    out[c] = std::fma(to_float(in[c]), scales.scale_of(c), scales.offset_of(c));
}

void decode_row(fa3_dtype dtype, const void* data, int64_t at, const RowScales& scales,
                int64_t columns, float* out) {
  if (dtype == FA3_F8_E4M3) decode_row(static_cast<const F8E4m3*>(data) + at, scales, columns, out);
  if (dtype == FA3_I8) decode_row(static_cast<const int8_t*>(data) + at, scales, columns, out);
  if (dtype == FA3_F16) decode_row(static_cast<const F16*>(data) + at, scales, columns, out);
  if (dtype == FA3_BF16) decode_row(static_cast<const Bf16*>(data) + at, scales, columns, out);
}

// The rows of one head of sequence b.
void decode_head(const Problem& p, const Buffers& x, TensorId id, int64_t b, int64_t head,
                 float* to) {
  const Sequence s = id == kQ ? q_sequence(p, x, b) : kv_sequence(p, x, b);
  const Layout &from = p.layout[id], into = dense(p, id);
  for (int64_t i = 0; i < s.len; ++i) {
    const int64_t row = s.begin + i;
    decode_row(from.dtype, x.data[id], b * from.batch + row * from.row + head * from.head,
               scales_of(p, x, id, b, s.begin, i, head), p.columns_of(id),
               to + b * into.batch + row * into.row + head * into.head);
  }
}

}  // namespace

Problem decoded(const Problem& problem) {
  Problem p = problem;
  for (const TensorId id : kDecoded) p.layout[id] = dense(problem, id);
  for (const TensorId id : {kQScale, kKScale, kVScale, kKOffset, kVOffset}) p.layout[id] = {};
  p.scale_block = {};
  return p;
}

size_t decoded_bytes(const Problem& problem) {
  Arena arena(nullptr);
  for (const TensorId id : kDecoded) arena.take<float>(elements(problem, id));
  return arena.used();
}

Buffers decode(const Problem& p, const Buffers& buffers, std::byte* workspace,
               const Executor& executor) {
  Buffers x = buffers;
  Arena arena(workspace);
  for (const TensorId id : kDecoded) x.data[id] = arena.take<float>(elements(p, id));
  const int64_t heads = p.heads_q + 2 * p.heads_kv;
  executor.run(p.batch * heads, [&](const TaskContext& task) {
    const int64_t b = task.index / heads, i = task.index % heads;
    const TensorId id = i < p.heads_q ? kQ : i < p.heads_q + p.heads_kv ? kK : kV;
    const int64_t head = id == kQ ? i : (i - p.heads_q) % p.heads_kv;
    decode_head(p, buffers, id, b, head, x.out<float>(id));
  });
  return x;
}

}  // namespace fa3::cpu
