// SPDX-License-Identifier: BSD-3-Clause
// append_sm90.cpp — arguments of the kernel that appends to a cache.
#include "backend/launch/append_sm90.h"

#include <algorithm>

#include "backend/launch/tensor_maps_sm90.h"
#include "core/dtype.h"
#include "device/sm90/append/args.h"

namespace fa3::sm90 {
namespace {

constexpr uintptr_t kWide = 16;  // bytes of an access

// Do all rows begin at multiples of 16 bytes?
bool is_wide(const AppendTensor& x) {
  const auto strides = static_cast<uintptr_t>(2 * (x.batch | x.row | x.head));
  return (strides | reinterpret_cast<uintptr_t>(x.data)) % kWide == 0;
}

Divider divider(int64_t by) { return Divider::by(static_cast<u32>(std::max<int64_t>(by, 1))); }

AppendRows rows_of(const AppendTasks& tasks, const SeqAxis& axis, int64_t heads, int64_t columns,
                   int64_t rotated, const AppendTensor& from, const AppendTensor& to) {
  AppendRows rows{};
  rows.from = from, rows.to = to;
  rows.heads = static_cast<i32>(heads);
  rows.rotated = static_cast<i32>(rotated);
  rows.copied = static_cast<i32>(columns - 2 * rotated);
  rows.pieces = divider(tasks.pieces);
  rows.warps = divider(tasks.warps);
  rows.rows = divider(axis.rows);
  rows.tasks = static_cast<u32>(tasks.tasks);
  return rows;
}

bool is_wide(const AppendRows& rows) {
  constexpr i32 kPiece = kAppendPiece;
  return rows.tasks == 0 || (rows.rotated % kPiece == 0 && rows.copied % kPiece == 0 &&
                             is_wide(rows.from) && is_wide(rows.to));
}

bool is_wide(const AppendTable& table, FloatType type) {
  const auto rows = static_cast<uintptr_t>((table.cosine_row | table.sine_row) * size_of(type));
  const auto addresses =
      reinterpret_cast<uintptr_t>(table.cosines) | reinterpret_cast<uintptr_t>(table.sines);
  return (rows | addresses) % kWide == 0;
}

}  // namespace

AppendTensor append_tensor(const Layout& layout, void* data) {
  return {static_cast<u8*>(data), layout.batch, layout.row, layout.head};
}

AppendTable append_table(const Problem& p, const Buffers& x) {
  AppendTable table{};
  if (p.rotation.rotary_dim == 0) return table;
  table.cosines = x.in<u8>(kRotaryCos), table.sines = x.in<u8>(kRotarySin);
  table.cosine_row = p.layout[kRotaryCos].row, table.sine_row = p.layout[kRotarySin].row;
  table.positions = static_cast<i32>(std::min<int64_t>(p.rotation.positions, INT32_MAX));
  table.first = x.in<i32>(kRotaryPosition);
  table.pairs = p.rotation.rotary_pairs;
  return table;
}

Status launch(const AppendPlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  const Buffers& x = run.buffers;
  const auto tensor = [&](TensorId id) { return append_tensor(p.layout[id], x.data[id]); };
  const int64_t rotated = p.rotation.rotary_dim / 2;
  AppendArgs args{};
  args.k = rows_of(plan.k, p.fresh, p.heads_kv, p.head_dim_qk, rotated, tensor(kKNew), tensor(kK));
  args.v = rows_of(plan.v, p.fresh, p.heads_kv, p.head_dim_v, 0, tensor(kVNew), tensor(kV));
  if (plan.append.rotates())
    args.q = rows_of(plan.q, p.q, p.heads_q, p.head_dim_qk, rotated, tensor(kQ),
                     append_tensor(plan.append.attention.problem.layout[kQ],
                                   run.workspace + plan.append.queries));
  args.fresh = lengths_of(p, kKNew, x);
  args.queries = lengths_of(p, kQ, x);
  args.keys = lengths_of(p, kK, x);
  args.cache = cache_of(p, x);
  args.table = append_table(p, x);
  args.lengths = reinterpret_cast<i32*>(run.workspace + plan.append.lengths);
  args.batch = static_cast<i32>(p.batch);
  args.groups = plan.groups;
  args.most = static_cast<i32>(p.kv.max_seqlen);
  args.moves = p.has_positions();
  args.wide = is_wide(args.k) && is_wide(args.v) && is_wide(args.q) &&
              is_wide(args.table, plan.config.table);
  return run.launch(args);
}

}  // namespace fa3::sm90
