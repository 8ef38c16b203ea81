// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the kernels that quantise a tensor, as a value: types, what turns a
// row, and which elements share a scale.
//
// A row is held by `lanes()` neighbouring lanes, in pieces of 8 columns that they take in turns:
// lane l has columns 8·(l + lanes()·j) … + 7. So a load is 64 bytes of a row and 8 rows a warp,
// all in whole sectors.
//
// The Hadamard transform is a GEMM where x is of 16 bits: TMA brings rows into a ring of stages,
// and columns of the result are ordered so that they lie in those lanes (hadamard.h). By additions
// and shuffles a column took 23 instructions, and the kernels 0.53 to 0.69 of a copy's bandwidth;
// with rows loaded into registers 0.38 to 0.59, for want of loads in flight.
#pragma once

#include "device/hopper/tile_layout.h"
#include "device/sm90/common/float_type.h"
#include "device/types.h"

namespace fa3::sm90 {

// Rows whose sums a CTA makes at a time, for the mean; its threads where no GEMM turns the rows.
inline constexpr int kSumRows = 512;
inline constexpr int kSumThreads = 256;

// Which columns rotary embedding pairs, of the first rotary_dim: quantize.h.
enum class RotaryKind : u8 { kNone, kHalves, kPairs };

// What every pass needs to turn a row.
struct TurnConfig {
  FloatType x = FloatType::kBf16;
  int head_dim = 128;  // multiple of 16
  int hadamard = 0;    // columns of a block, a power of two; 0 = off
  RotaryKind rotary = RotaryKind::kNone;
  int rotary_dim = 0;  // multiple of 16
  FloatType table = FloatType::kF32;
  int block_cols = 0;  // columns that share a scale, a multiple of 8; 0 = all
  int most_lanes = 4;  // that may share a row: neighbours
  // Or rows lie in shared memory, and lanes that share one are 32 / lanes() apart.
  bool from_smem = false;

  static constexpr int kPiece = 8;
  static constexpr int kMostValues = 128;  // that a thread can hold beside the rest

  constexpr bool operator==(const TurnConfig&) const = default;

  // As many as divide the pieces of a row, those of half the rotated columns, whose partners are
  // then in the same lane, and those of a block of scales.
  FA3_HD constexpr int lanes() const {
    int most = most_lanes;
    const auto fit = [&most](int columns) {
      while (columns / kPiece % most != 0) most /= 2;
    };
    fit(head_dim);
    if (rotary == RotaryKind::kHalves) fit(rotary_dim / 2);
    fit(block_cols);
    return most;
  }
  FA3_HD constexpr int lane_step() const { return from_smem ? 32 / lanes() : 1; }
  // Do lanes that share a row exchange columns on the way (turn.h)? Whole groups of so many.
  FA3_HD constexpr int exchanged() const { return kPiece * lanes() * lanes(); }
  FA3_HD constexpr bool exchanges() const {
    const int pairs = rotary == RotaryKind::kHalves ? rotary_dim / 2 : rotary_dim;
    const int all[] = {head_dim, hadamard, rotary == RotaryKind::kNone ? 0 : pairs, block_cols};
    bool whole = from_smem && lanes() > 1 && hadamard > 0;
    for (int columns : all) whole = whole && columns % exchanged() == 0;
    return whole;
  }
  // Is the transform a GEMM? Rotated rows are not of 16 bits any more; in blocks of fewer columns
  // than a piece has in all lanes, the zeros of B would make NaN of another block's NaN.
  FA3_HD constexpr bool by_gemm() const {
    return hadamard >= 32 && x != FloatType::kF32 && rotary == RotaryKind::kNone && lanes() == 4;
  }
  // Columns of a GEMM; what is left of the transform are additions between them.
  FA3_HD constexpr int gemm_columns() const { return min(hadamard, 64); }
  FA3_HD constexpr int gemms() const { return head_dim / gemm_columns(); }
  FA3_HD constexpr TileLayout gemm_tile() const { return {gemm_columns(), gemm_columns(), 2}; }
  FA3_HD constexpr int gemm_bytes() const {
    return static_cast<int>(round_up(gemms() * gemm_tile().bytes(), 1024));
  }
  // 64 rows of x for each warpgroup, as TMA loads them.
  FA3_HD constexpr TileLayout x_tile(int warpgroups = 1) const {
    return {kWgRows * warpgroups, head_dim, 2};
  }
  FA3_HD constexpr int stages() const { return head_dim <= 64 ? 3 : 2; }

  FA3_HD constexpr int pieces() const { return head_dim / kPiece / lanes(); }  // of a lane
  FA3_HD constexpr int values() const { return kPiece * pieces(); }            // of a lane
  // Of a warpgroup, or of a CTA where no GEMM turns rows.
  FA3_HD constexpr int threads() const { return by_gemm() ? kWgThreads : 256; }
  FA3_HD constexpr int depth() const { return by_gemm() ? 2 : 1; }  // rows of a thread
  FA3_HD constexpr int rows() const { return threads() / lanes() * depth(); }

  // Of shared memory: B, stages of x and their barriers; means and a few words.
  FA3_HD constexpr int smem_bytes(int warpgroups = 1) const {
    return (by_gemm() ? gemm_bytes() + stages() * x_tile(warpgroups).bytes() + 1024 : 0) + 3072;
  }

  // The sums of columns. Of a GEMM whose result has columns as rows, a wgmma's 64, each thread has
  // two columns of each GEMM; otherwise 8 neighbours.
  FA3_HD constexpr bool sums_by_gemm() const { return by_gemm() && gemm_columns() == kWgRows; }
  FA3_HD constexpr int sum_threads() const { return sums_by_gemm() ? kWgThreads : kSumThreads; }
  FA3_HD constexpr bool turns() const { return hadamard > 0 || rotary != RotaryKind::kNone; }
  FA3_HD constexpr int sum_groups() const { return kSumThreads / (head_dim / kPiece); }  // of rows
  FA3_HD constexpr int sum_turned() const { return turns() ? kSumThreads / lanes() : 1; }
  FA3_HD constexpr int sum_bytes() const {
    if (sums_by_gemm()) return smem_bytes();
    const int words = sum_turned() * (head_dim + 4) + col_blocks() + 1;
    return 16 * sum_groups() * head_dim + static_cast<int>(round_up(4 * words, 16));
  }
  FA3_HD constexpr int sum_ctas() const {  // of an SM
    if (sums_by_gemm()) return head_dim > 128 ? 2 : 4;
    return turns() ? 1 : x == FloatType::kF32 ? 2 : 3;
  }

  // Blocks of columns, and the one of a lane's piece j.
  FA3_HD constexpr int col_blocks() const {
    return block_cols == 0 ? 1 : static_cast<int>(div_up(head_dim, block_cols));
  }
  FA3_HD constexpr int col_block(int j) const {
    return block_cols == 0 ? 0 : kPiece * lanes() * j / block_cols;
  }
};

struct QuantizeConfig {
  TurnConfig turn;
  bool to_i8 = false;  // else to E4M3
  // Rows that share a scale: 1 = each has its own; more = a block that a CTA holds; 0 = more than
  // that, whose maxima another kernel has found.
  int block_rows = 1;

  constexpr bool operator==(const QuantizeConfig&) const = default;

  // Of a CTA: a second one halves what a thread holds of a block.
  FA3_HD constexpr int warpgroups() const {
    return turn.by_gemm() && block_rows > turn.rows() ? 2 : 1;
  }
  FA3_HD constexpr int threads() const { return warpgroups() * turn.threads(); }
  FA3_HD constexpr int turn_rows() const { return warpgroups() * turn.rows(); }
  // How often a CTA turns rows before it writes them.
  FA3_HD constexpr int turns() const {
    return block_rows <= 1 ? 1 : static_cast<int>(div_up(block_rows, turn_rows()));
  }
  FA3_HD constexpr int rows() const { return block_rows <= 1 ? turn_rows() : block_rows; }
  FA3_HD constexpr int smem_bytes() const { return turn.smem_bytes(warpgroups()); }
  // CTAs that an SM has room for, about: each value that a thread holds takes two registers, of
  // 65,536; where no GEMM turns rows, 256 threads have 64.
  FA3_HD constexpr int ctas_of_sm() const {
    if (!turn.by_gemm()) return 4;
    constexpr int kSmem = 228 * 1024, kOfSystem = 1024;
    const int held = warpgroups() * turns() * turn.depth() * turn.values();
    return max(min(256 / held, kSmem / (smem_bytes() + kOfSystem)), 1);
  }
};

// Of rotated rows of 16 bits that have a scale each (rotated.cuh).
struct RotatedConfig {
  QuantizeConfig codes;
  int row_blocks = 1;  // of a tile, each of as many rows as a warp has at a time: 1 or 2

  constexpr bool operator==(const RotatedConfig&) const = default;

  static constexpr int kTableWarps = 3;        // beside one for x
  static constexpr int kStages = kTableWarps;  // tiles, with their tables
  static constexpr int kProducerRegisters = 32;

  // With 64 columns a lane, since the code of more does not fit the cache of instructions, if then
  // lanes exchange columns; else with as few lanes a row as have registers for its values, if 2 do.
  // Two blocks of rows where one would be less than 16 rows, or leave consumers idle.
  FA3_HD static constexpr RotatedConfig of(QuantizeConfig codes, i64 heads = 32) {
    RotatedConfig config{codes};
    TurnConfig& turn = config.codes.turn;
    turn.from_smem = true;
    for (turn.most_lanes = 1; turn.most_lanes < 4 && turn.values() > 64;) turn.most_lanes *= 2;
    if (turn.values() > 64 || (turn.lanes() > 1 && !turn.exchanges()))
      turn.most_lanes = turn.head_dim > TurnConfig::kMostValues ? 2 : 1;
    if (config.warp_rows() < 16 || !config.keeps_busy(heads)) config.row_blocks = 2;
    return config;
  }
  // Have all consumers something to do while there are tiles?
  FA3_HD constexpr bool keeps_busy(i64 heads) const {
    return heads * row_blocks * kStages >= consumers();
  }

  // Consumer warps: as many as have registers for a lane's values.
  FA3_HD constexpr int consumers() const { return codes.turn.values() > 64 ? 12 : 20; }
  // What the CTA was launched with, shared out again: setmaxnreg has no others to give.
  FA3_HD constexpr int consumer_registers() const {
    const int at_launch = 65536 / threads() / 8 * 8;
    const int of_producer = kProducerRegisters * kWgThreads;
    return (at_launch * threads() - of_producer) / (32 * consumers()) / 8 * 8;
  }
  FA3_HD constexpr int threads() const { return 32 * consumers() + kWgThreads; }
  // Of a warp at a time, and of a tile.
  FA3_HD constexpr int warp_rows() const { return 32 / codes.turn.lanes(); }
  FA3_HD constexpr int rows() const { return row_blocks * warp_rows(); }
  FA3_HD constexpr TileLayout x_tile() const { return {warp_rows(), codes.turn.head_dim, 2}; }
  FA3_HD constexpr int x_bytes() const {
    return static_cast<int>(round_up(x_tile().bytes(), 1024));
  }
  // Do all panels of x come in one box?
  FA3_HD constexpr bool one_box() const {
    return codes.turn.head_dim % x_tile().panel_columns() == 0;
  }
  // Rows with 16 bytes more lie in other banks.
  FA3_HD constexpr int code_pitch() const { return codes.turn.head_dim + 16; }
  FA3_HD constexpr int table_pitch() const { return codes.turn.rotary_dim / 2 + 4; }  // numbers
  // Numbers of a table in 16 bytes.
  FA3_HD constexpr int piece() const { return 16 / size_of(codes.turn.table); }
  FA3_HD constexpr int smem_bytes() const {
    const int of_consumer = x_bytes() + warp_rows() * code_pitch() + 16;
    const int of_stage = 2 * rows() * 4 * table_pitch() + 72;
    const int bytes = consumers() * of_consumer + kStages * of_stage;
    return static_cast<int>(round_up(bytes + 2 * codes.turn.head_dim + 16, 1024));
  }

  // How far apart the columns of a pair are.
  FA3_HD constexpr int apart() const {
    return codes.turn.rotary == RotaryKind::kPairs ? 1 : codes.turn.rotary_dim / 2;
  }
  // Are they partners in the Hadamard transform, too? Then rotation and that butterfly are one.
  FA3_HD constexpr bool fused() const {
    return (apart() & (apart() - 1)) == 0 && 2 * apart() <= codes.turn.hadamard;
  }
};

}  // namespace fa3::sm90
