// SPDX-License-Identifier: BSD-3-Clause
// sums.h — of the rows of a chunk, column by column of y: their sum, the least and the largest,
// what is finite. Rows come from a GEMM with columns as rows, so that a thread has many rows of
// few columns; or as pieces of 8 columns, from memory or, turned by additions, through shared
// memory. Sums are made in an order that the shape alone decides.
// SYNC      by GEMM: turn_columns. Pieces: cta_sync before and after each turn's rows in shared
//           memory, once or twice for the sums of a chunk, and between chunks
#pragma once

#include "device/sm90/quantize/hadamard.h"

namespace fa3::sm90 {

FA3_DEV ColumnSums no_rows() { return {0, kInf, -kInf, 0}; }

FA3_DEV void merge(ColumnSums& to, const ColumnSums& other) {
  to.sum += other.sum;
  to.least = ptx::min(to.least, other.least);
  to.most = ptx::max(to.most, other.most);
  to.count += other.count;
}

// Of the rows of a thread: fewer than 256.
template <int kColumns>
class RowSums {
 public:
  FA3_DEV RowSums() {
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) sum_[c] = 0, least_[c] = kInf, most_[c] = -kInf;
  }

  // value(c, i) for i < kRows. all: every row counts; else those where counts(i).
  template <int kRows, class Value, class Counts>
  FA3_DEV void add(const Value& value, bool all, const Counts& counts) {
    rows_ += kRows;
    float sum[kColumns];
    bool finite = all;
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = 0;
      FA3_UNROLL
      for (int i = 0; i < kRows; ++i) sum[c] += value(c, i);
      finite = finite && ptx::abs(sum[c]) < kInf;
    }
    if (!finite) return add_some<kRows>(value, counts);
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      sum_[c] += sum[c];
      FA3_UNROLL
      for (int i = 0; i < kRows; ++i) raise(c, value(c, i));
    }
  }

  FA3_DEV ColumnSums of(int c) const {
    const u32 skipped = skipped_[c / 4] >> 8 * (c % 4) & 255;
    return {sum_[c], least_[c], most_[c], rows_ - static_cast<i32>(skipped)};
  }

 private:
  FA3_DEV void raise(int c, float value) {
    least_[c] = ptx::min(least_[c], value);
    most_[c] = ptx::max(most_[c], value);
  }

  // The same in the same order, of what is finite and counts.
  template <int kRows, class Value, class Counts>
  FA3_DEV void add_some(const Value& value, const Counts& counts) {
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      float sum = 0;
      FA3_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (counts(i) && ptx::abs(value(c, i)) < kInf) {
          sum += value(c, i);
          raise(c, value(c, i));
        } else {
          skipped_[c / 4] += 1u << 8 * (c % 4);
        }
      }
      sum_[c] += sum;
    }
  }

  float sum_[kColumns], least_[kColumns], most_[kColumns];
  i32 rows_ = 0;
  u32 skipped_[(kColumns + 3) / 4] = {};  // four to a word
};

// Where the sums of a chunk lie.
template <TurnConfig kCfg>
FA3_DEV ColumnSums* sums_of(const QuantizeArgs& args, const QuantizePlace& place, i32 chunk) {
  const i64 head = i64{place.b} * args.heads + place.head;
  return args.sums + (head * args.chunks + chunk) * kCfg.head_dim;
}

template <TurnConfig kCfg>
class GemmSums {
 public:
  using Smem = GemmSmem<kCfg, 1>;
  FA3_DEV GemmSums(const QuantizeArgs& args, Smem& smem) : args_(args), turner_(args, smem) {}

  FA3_DEV void run(const QuantizePlace& place) {
    const RowWalk walk{kSumRows * place.cta, kSumRows * place.ctas, kSumRows / kWgRows, kWgRows};
    turner_.start(place, walk);
    i32 n = 0;
    for (i32 chunk = place.cta; kSumRows * chunk < place.rows.used; chunk += place.ctas) {
      RowSums<kColumns> sums;
      const i32 rows = clamp(place.rows.used - kSumRows * chunk, 0, kSumRows);
      FA3_NO_UNROLL
      for (i32 i = 0; i < rows; i += kWgRows, ++n) {
        ptx::Acc<kWgRows> y[kGemms];
        turner_.turn_columns(place, walk, n, y);
        const i32 first = i + 2 * static_cast<i32>(ptx::lane_index() % 4);
        const auto at = [](int c, int k) { return k / 2 * 4 + c % 2 * 2 + k % 2; };
        sums.template add<kWgRows / 4>([&](int c, int k) { return y[c / 2][at(c, k)]; },
                                       i + kWgRows <= rows,
                                       [&](int k) { return first + k / 2 * 8 + k % 2 < rows; });
      }
      store(sums_of<kCfg>(args_, place, chunk), sums);
    }
  }

 private:
  static constexpr int kGemms = kCfg.gemms(), kColumns = 2 * kGemms;  // of a thread

  // Of the four lanes that have the same columns.
  FA3_DEV static void store(ColumnSums* to, const RowSums<kColumns>& sums) {
    const int lane = static_cast<int>(ptx::lane_index());
    const int row = static_cast<int>(ptx::thread_index() / 32) * 16 + lane / 4;
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      ColumnSums of = sums.of(c);
      FA3_UNROLL
      for (u32 m = 1; m < 4; m *= 2)
        merge(of, {ptx::shfl_xor(of.sum, m), ptx::shfl_xor(of.least, m), ptx::shfl_xor(of.most, m),
                   ptx::shfl_xor(of.count, m)});
      if (lane % 4 == 0) ptx::st_global(to + kWgRows * (c / 2) + column_of(row + c % 2 * 8), of);
    }
  }

  const QuantizeArgs& args_;
  GemmTurner<kCfg> turner_;
};

template <TurnConfig kCfg>
struct PieceSmem {
  ColumnSums of_group[kCfg.sum_groups()][kCfg.head_dim];
  alignas(16) float y[kCfg.sum_turned()][kCfg.head_dim + 4];  // + 4: rows lie in other banks
  FA3_NAMED(of_group, y)
};

template <TurnConfig kCfg>
class PieceSums {
 public:
  using Smem = PieceSmem<kCfg>;
  FA3_DEV PieceSums(const QuantizeArgs& args, Smem& smem)
      : args_(args),
        smem_(smem),
        piece_(static_cast<i32>(ptx::thread_index()) % kPieces),
        group_(static_cast<i32>(ptx::thread_index()) / kPieces) {}

  FA3_DEV void run(const QuantizePlace& place) const {
    for (i32 chunk = place.cta; kSumRows * chunk < place.rows.used; chunk += place.ctas) {
      if (chunk > place.cta) ptx::cta_sync();  // shared memory is free
      add(place, chunk);
    }
  }

 private:
  FA3_DEV void add(const QuantizePlace& place, i32 chunk) const {
    const i32 first = kSumRows * chunk;
    const i32 rows = clamp(place.rows.used - first, 0, kSumRows);
    RowSums<8> sums;
    if constexpr (kCfg.turns()) {
      add_turned(place, first, rows, sums);
    } else {
      const i64 at = place.at(args_.x, first) + 8 * piece_;
      add(rows, sums, [&](i32 i, float(&y)[8]) {
        load_piece<kCfg.x>(args_.x.data, at + i * args_.x.row, y, {}, FromGlobal{});
      });
    }
    over_groups(sums_of<kCfg>(args_, place, chunk), sums);
  }

  static constexpr int kPieces = kCfg.head_dim / 8, kGroups = kCfg.sum_groups();
  static constexpr int kParts = kSumThreads / kCfg.head_dim;
  static constexpr int kDepth = 4;  // rows whose loads are in flight

  // Rows of the thread's group: load(i, y).
  template <class Load>
  FA3_DEV void add(i32 rows, RowSums<8>& sums, const Load& load) const {
    if (group_ >= kGroups) return;
    FA3_NO_UNROLL
    for (i32 i = group_; i < rows; i += kDepth * kGroups) {
      float y[kDepth][8];
      const auto counts = [&](int k) { return i + k * kGroups < rows; };
      FA3_UNROLL
      for (int k = 0; k < kDepth; ++k) load(min(i + k * kGroups, rows - 1), y[k]);
      FA3_UNROLL
      for (int k = 0; k < kDepth; ++k)
        sums.template add<1>([&](int c, int) { return y[k][c]; }, counts(k),
                             [&](int) { return counts(k); });
    }
  }

  FA3_DEV void add_turned(const QuantizePlace& place, i32 first, i32 rows, RowSums<8>& sums) const {
    NoSmem none;
    const RowTurner<kCfg> turner(args_, none);
    const i32 own = turner.row(0);
    FA3_NO_UNROLL
    for (i32 at = 0; at < rows; at += kCfg.sum_turned()) {
      float y[kCfg.values()];
      turner.turn(place, first + at + own, y);
      FA3_UNROLL
      for (int v = 0; v < kCfg.values(); v += 4)
        ptx::st_shared(reinterpret_cast<Four*>(&smem_.y[own][8 * piece_of<kCfg>(v / 8) + v % 8]),
                       Four{{y[v], y[v + 1], y[v + 2], y[v + 3]}});
      ptx::cta_sync();
      add(min(rows - at, kCfg.sum_turned()), sums, [&](i32 i, float(&to)[8]) {
        FA3_UNROLL
        for (int half = 0; half < 8; half += 4) {
          const Four four =
              ptx::ld_shared(reinterpret_cast<const Four*>(&smem_.y[i][8 * piece_ + half]));
          FA3_UNROLL
          for (int c = 0; c < 4; ++c) to[half + c] = four[c];
        }
      });
      ptx::cta_sync();
    }
  }

  FA3_DEV void over_groups(ColumnSums* to, const RowSums<8>& sums) const {
    if (group_ < kGroups) {
      FA3_UNROLL
      for (int c = 0; c < 8; ++c)
        ptx::st_shared(&smem_.of_group[group_][8 * piece_ + c], sums.of(c));
    }
    ptx::cta_sync();
    // A column's groups in parts, a thread each; its first group then holds the part.
    const i32 thread = static_cast<i32>(ptx::thread_index());
    const i32 column = thread % kCfg.head_dim, part = thread / kCfg.head_dim;
    ColumnSums all = no_rows();
    if (part < kParts) {
      FA3_NO_UNROLL
      for (i32 group = part; group < kGroups; group += kParts)
        merge(all, ptx::ld_shared(&smem_.of_group[group][column]));
    }
    if constexpr (kParts > 1) {
      if (part < kParts) ptx::st_shared(&smem_.of_group[part][column], all);
      ptx::cta_sync();
      FA3_UNROLL
      for (i32 other = 1; other < kParts; ++other)
        if (part == 0) merge(all, ptx::ld_shared(&smem_.of_group[other][column]));
    }
    if (part == 0) ptx::st_global(to + column, all);
  }

  using Four = ptx::Vec<float, 4>;

  const QuantizeArgs& args_;
  Smem& smem_;
  const i32 piece_, group_;
};

template <TurnConfig kCfg, bool kByGemm = kCfg.sums_by_gemm()>
struct SumsOf {
  using Type = PieceSums<kCfg>;
  static constexpr float kUnit = 1;
};
template <TurnConfig kCfg>
struct SumsOf<kCfg, true> {
  using Type = GemmSums<kCfg>;
  static constexpr float kUnit = GemmTurner<kCfg>::kUnit;
};

}  // namespace fa3::sm90
