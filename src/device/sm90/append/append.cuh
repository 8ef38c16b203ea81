// SPDX-License-Identifier: BSD-3-Clause
// append.cuh — what comes before attention to a cache that grows: new keys and values are written
// behind those that are there, keys and queries rotated; and the lengths that are then attended to.
// Nothing is multiplied: the kernel is bound by memory, and of few rows by loads that wait for each
// other.
// CONTRACT  any strides and addresses of whole elements. Entries, lengths and positions in memory
//           may be wrong: what has no place is not written. Attention runs in the next grid: none
//           reads by TMA what another of its CTAs has stored.
// ROLES     a warp has groups of 32 pieces of one row, of all its heads; a lane one of each
// GRID      x: tasks of k_new, v_new, q and lengths, one after another, a warp each
#pragma once

#include "device/ptx/grid.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/append/args.h"
#include "device/sm90/append/config.h"
#include "device/sm90/append/piece.h"

namespace fa3::sm90 {

// A row of an axis: of which sequence, and which of its rows.
struct AppendRow {
  i32 b = 0, i = 0;
  SequenceRows sequence;
  bool counts = false;
};

// All lanes of a warp.
FA3_DEV AppendRow append_row(const RowAxis& axis, const Divider& rows, i32 batch, i32 row) {
  AppendRow at;
  if (axis.cu_seqlens == nullptr) {
    at.b = rows.quotient(row);
    at.i = rows.remainder(row);
  } else {
    // As many sequences end at the row or before as have their end there.
    u32 ended = 0;
    for (i32 b = static_cast<i32>(ptx::lane_index()); b < batch; b += 32)
      ended += ptx::ld_global_nc(axis.cu_seqlens + b + 1) <= row ? 1u : 0u;
    at.b = static_cast<i32>(ptx::redux_add(ended));
  }
  if (at.b >= batch) return at;
  at.sequence = rows_of<true>(axis, batch, at.b);
  if (axis.cu_seqlens != nullptr) at.i = row - at.sequence.begin;
  at.counts = at.i >= 0 && at.i < at.sequence.used;
  return at;
}

template <AppendConfig kCfg>
struct AppendWarp {
  static constexpr int kAtATime = 2;  // pieces of a lane on their way
  const AppendArgs& args;

  // A task of k_new or v_new.
  FA3_DEV void write_keys(const AppendRows& rows, i32 task) const {
    const AppendRow at = append_row(args.fresh, rows.rows, args.batch, rows.warps.quotient(task));
    if (!at.counts) return;
    const SequenceRows keys = args.cache.rows_of(args.keys, at.b);
    if (at.i >= min(keys.rows, args.most) - keys.used) return;
    const i32 row = keys.begin + keys.used + at.i;
    const i32 entry = args.cache.entry_of(at.b, row);
    if (!args.cache.has(entry)) return;
    const i32 first = args.fresh.cu_seqlens == nullptr ? 0 : at.sequence.begin;
    write(rows, task, at.b, first + at.i, entry, args.cache.row_of(row),
          rotary_position(args.table, at.b, keys.used, at.i));
  }

  // A task of q.
  FA3_DEV void rotate_queries(i32 task) const {
    const AppendRow at =
        append_row(args.queries, args.q.rows, args.batch, args.q.warps.quotient(task));
    if (!at.counts) return;
    const SequenceRows keys = args.cache.rows_of(args.keys, at.b);
    const i32 row = first_row(args.queries, at.sequence) + at.i;
    write(args.q, task, at.b, row, at.b, row,
          rotary_position(args.table, at.b, keys.used, args.moves ? at.i : 0));
  }

  // 32 lengths.
  FA3_DEV void write_lengths(i32 task) const {
    const i32 b = 32 * task + static_cast<i32>(ptx::lane_index());
    if (b >= args.batch) return;
    const SequenceRows keys = args.cache.rows_of(args.keys, b);
    const i32 fresh = rows_of<true>(args.fresh, args.batch, b).used;
    const i32 room = min(keys.rows, args.most) - keys.used;
    ptx::st_global(args.lengths + b, keys.used + min(fresh, room));
  }

 private:
  // A lane's items of a task: a piece of a row of a head in each group.
  FA3_DEV void write(const AppendRows& rows, i32 task, i32 b, i32 row, i32 entry, i32 to_row,
                     i32 position) const {
    const i32 first =
        32 * args.groups * rows.warps.remainder(task) + static_cast<i32>(ptx::lane_index());
    const auto place = [](const AppendTensor& x, i32 entry, i32 row, i32 head) {
      return reinterpret_cast<u16*>(x.data) + (entry * x.batch + row * x.row + head * x.head);
    };
    FA3_NO_UNROLL
    for (i32 group = 0; group < args.groups; group += kAtATime) {
      WidePiece<kCfg> pieces[kAtATime];
      u16* to[kAtATime];
      FA3_UNROLL
      for (int u = 0; u < kAtATime; ++u) {
        const i32 item = first + 32 * (group + u), head = rows.pieces.quotient(item);
        to[u] = nullptr;
        if (group + u >= args.groups || head >= rows.heads) continue;
        const u16* const from = place(rows.from, b, row, head);
        u16* const own = place(rows.to, entry, to_row, head);
        const i32 piece = rows.pieces.remainder(item);
        if (args.wide) {
          pieces[u].load(args.table, from, rows.rotated, piece, position);
          to[u] = own;
        } else {
          NarrowPiece<kCfg>{args.table, rows.rotated, rows.copied}.write(from, own, piece,
                                                                         position);
        }
      }
      FA3_UNROLL
      for (int u = 0; u < kAtATime; ++u)
        if (to[u] != nullptr) pieces[u].store(args.table, to[u]);
    }
  }
};

template <AppendConfig kCfg>
FA3_KERNEL(AppendConfig::kThreads)
void append(FA3_GRID_CONSTANT const AppendArgs args) {
  ptx::pdl_launch();
  ptx::pdl_wait();
  const AppendWarp<kCfg> warp{args};
  const u32 tasks = args.k.tasks + args.v.tasks + args.q.tasks;
  const u32 all = tasks + static_cast<u32>(div_up(args.batch, 32));
  FA3_NO_UNROLL
  for (u32 i = ptx::block_index_x() * AppendConfig::kWarps + ptx::warp_index(); i < all;
       i += ptx::grid_dim_x() * AppendConfig::kWarps) {
    if (i < args.k.tasks) {
      warp.write_keys(args.k, static_cast<i32>(i));
    } else if (i < args.k.tasks + args.v.tasks) {
      warp.write_keys(args.v, static_cast<i32>(i - args.k.tasks));
    } else if (i < tasks) {
      warp.rotate_queries(static_cast<i32>(i - args.k.tasks - args.v.tasks));
    } else {
      warp.write_lengths(static_cast<i32>(i - tasks));
    }
  }
}

}  // namespace fa3::sm90
