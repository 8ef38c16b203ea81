// SPDX-License-Identifier: BSD-3-Clause
// problem.h — one attention call, validated and normalised: Problem (shapes, strides, flags: what a
// plan depends on) and Buffers (the addresses: what a run depends on). Made by src/api, read by
// src/plan and src/backend.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "core/options.h"
#include "core/tensors.h"
#include "fa3/fa3.h"

namespace fa3 {

// Where element (batch b, row i, head h, column c) of a tensor lies: data + b·batch + i·row +
// h·head + c·column, in elements. Varlen tensors have batch = 0 and count rows from the first token
// of all; LSE has no column, sequence ids no head, slopes no row (those: 0). NONE = absent.
struct Layout {
  fa3_dtype dtype = FA3_DTYPE_NONE;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
  int64_t column = 1;  // of masks 0 where all columns share an element
  int64_t part = 0;    // of what is merged: element of part i at i·part more

  bool present() const { return dtype != FA3_DTYPE_NONE; }
  bool operator==(const Layout&) const = default;
};

// The sequence dimension of the queries or of the keys.
struct SeqAxis {
  bool varlen = false;     // rows of all sequences one after another, cut by cu_seqlens
  bool seqused = false;    // only the first seqused[b] rows of a sequence count
  int64_t rows = 0;        // dense: rows per batch entry; varlen: rows of all sequences; of pages:
                           // those that a row of page_table can name
  int64_t max_seqlen = 0;  // upper bound of a sequence's length

  bool operator==(const SeqAxis&) const = default;
};

// How sequences find their keys where these are not dense, or cut by cu_seqlens.
struct KvCache {
  int64_t entries = 0;    // with pages or slots: how many of them k and v have
  int64_t page_size = 0;  // rows of a page; 0 = there is no page_table
  int64_t max_pages = 0;  // columns of page_table
  bool slots = false;     // sequences read the slots of kv_batch_idx
  bool begins = false;    // their keys begin at rows kv_begin, of varlen k too, without cu_seqlens

  bool paged() const { return page_size > 0; }
  bool present() const { return paged() || slots || begins; }
  bool operator==(const KvCache&) const = default;
};

// Which elements of an 8-bit tensor share a scale: 0 rows = all of a sequence, 0 cols = all of a
// head. The scale of row i of a sequence, column c, lies at block (i / rows, c / cols).
struct ScaleBlock {
  int64_t rows = 0;
  int64_t cols = 0;
  bool shared_by_group = false;  // q_scale has a head for each KV head
  bool by_total_row = false;     // (total, heads): rows count from the tensor's first
  bool of_tensor = false;        // of a quantisation: (1), one for all
  bool by_page = false;          // (pages, heads)

  bool operator==(const ScaleBlock&) const = default;
};

// Extents of dattn_mask: those of the scores, or 1 where it is summed.
struct MaskExtents {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t columns = 0;

  bool operator==(const MaskExtents&) const = default;
};

// How a tensor is turned before it is quantised, or keys and queries before keys are appended: see
// fa3.h's quantize.h.
struct Rotation {
  int64_t hadamard = 0;  // columns of a block, a power of two; 0 = off
  uint64_t seed = 0;
  int64_t rotary_dim = 0;     // columns that rotary embedding turns; 0 = off
  bool rotary_pairs = false;  // columns 2i and 2i + 1 belong together, not i and i + rotary_dim / 2
  int64_t positions = 0;      // rows of rotary_cos and rotary_sin
  bool positioned = false;    // sequences begin at positions of their own

  bool operator==(const Rotation&) const = default;
};

// The tiles of v_image: as many keys, and columns; 0 keys = there is no image.
struct ImageTile {
  int64_t keys = 0;
  int64_t columns = 0;

  bool operator==(const ImageTile&) const = default;
};

// Those of a head, varlen of all sequences together: sequence b then begins at tile ⌊first row /
// keys⌋ + b, which leaves room for the partial tiles of those before.
inline int64_t image_tiles(const SeqAxis& axis, int64_t batch, int64_t keys) {
  return axis.varlen ? axis.rows / keys + batch : (axis.rows + keys - 1) / keys;
}

// Of a quantisation: q is the axis of x, heads_q and heads_kv are its heads, both head dims its
// columns; of a merge, those of a part. Varlen rows that are merged are one batch entry.
struct Problem : Options {
  fa3_op op = FA3_OP_FORWARD;
  int64_t batch = 0;
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t head_dim_qk = 0;
  int64_t head_dim_v = 0;
  SeqAxis q;
  SeqAxis kv;
  SeqAxis fresh;  // of what is appended to k and v
  KvCache cache;
  fa3_mask mask = FA3_MASK_FULL;
  std::array<Layout, kLayoutCount> layout;  // kQ … kMergedLse
  std::array<ScaleBlock, 3> scale_block;    // of kQ, kK, kV; of kCodes the first
  fa3_precision precision = FA3_PRECISION_DEFAULT;
  Rotation rotation;           // of a quantisation or of what is appended; a precision's seed
  bool deterministic = false;  // of a backward
  ImageTile image;
  // Positions are counted from the top left: p = i, and the lengths may differ.
  bool top_left = false;
  MaskExtents mask_grad;  // of dattn_mask
  int64_t parts = 0;      // of a merge

  // Of a tensor with rows: its sequence dimension, heads, and the columns of a row (LSE: 1).
  const SeqAxis& along(Axis axis) const {
    return axis == Axis::kKey ? kv : axis == Axis::kNew ? fresh : q;
  }
  const SeqAxis& axis_of(TensorId id) const { return along(kTensors[id].axis); }
  int64_t heads_of(TensorId id) const {
    const Axis axis = kTensors[id].axis;
    return axis == Axis::kKey || axis == Axis::kNew ? heads_kv : heads_q;
  }
  int64_t columns_of(TensorId id) const {
    const Dim dim = kTensors[id].dim;
    return dim == Dim::kNone ? 1 : dim == Dim::kV ? head_dim_v : head_dim_qk;
  }

  // Are its first two dimensions those of pages or slots?
  bool in_cache(TensorId id) const {
    return (cache.paged() || cache.slots) && (id == kK || id == kV);
  }

  // Batch entries and rows that the layout of a tensor counts.
  int64_t entries_of(TensorId id) const {
    if (in_cache(id)) return cache.entries;
    const Form form = kTensors[id].form;
    if (form == Form::kHeads) return 1;
    const bool by_row = form == Form::kRows || form == Form::kLse || form == Form::kIds ||
                        form == Form::kTree || form == Form::kImage;
    return by_row && axis_of(id).varlen ? 1 : batch;
  }
  int64_t rows_of(TensorId id) const {
    if (cache.paged() && in_cache(id)) return cache.page_size;
    const Form form = kTensors[id].form;
    return form == Form::kSlopes || form == Form::kHeads ? 1 : axis_of(id).rows;
  }

  // The blocks of scales of kQ, kK, kV or kCodes.
  ScaleBlock& block_of(TensorId id) { return scale_block[id == kCodes ? 0 : id]; }
  const ScaleBlock& block_of(TensorId id) const { return scale_block[id == kCodes ? 0 : id]; }

  // What is added to scores, and what hides keys besides the mask. sequence_ids_q and _kv are
  // present together.
  bool has_alibi() const { return layout[kAlibiSlopes].present(); }
  bool has_sequence_ids() const { return layout[kSequenceIdsQ].present(); }
  bool has_mask() const { return layout[kAttnMask].present(); }
  bool has_tree() const { return layout[kTreeMask].present(); }
  // Does each query hide keys of its own, whatever their position?
  bool hides_by_row() const { return has_mask() || has_tree(); }
  bool has_max_logit() const { return layout[kMaxLogit].present(); }
  bool has_sinks() const { return layout[kSinks].present(); }
  bool appends() const { return layout[kKNew].present(); }
  // Does a run write the tensor?
  bool writes(TensorId id) const {
    return is_output(role_of(op, id)) || (appends() && (id == kK || id == kV));
  }
  bool is_8_bit() const { return fa3::is_8_bit(layout[kQ].dtype); }
  bool has_8_bit_keys() const { return fa3::is_8_bit(layout[kK].dtype); }

  // Does each query have a position of its own, for masks and so for rotary embedding?
  bool has_positions() const { return mask != FA3_MASK_FULL || attention_chunk > 0; }

  // Query heads per KV head.
  int64_t group_size() const { return heads_kv == 0 ? 1 : heads_q / heads_kv; }
  bool operator==(const Problem&) const = default;
};

// No query, so nothing to compute. Varlen queries may have rows without a single sequence: those
// are outputs, too; a quantisation of nothing may have a scale.
inline bool has_no_rows(const Problem& p) {
  if (p.op == FA3_OP_QUANTIZE) return false;
  return (p.batch == 0 && !p.q.varlen) || p.heads_q == 0 || p.q.rows == 0;
}

// No key that any query could see: K and V are not read, and need not have an address.
inline bool has_no_keys(const Problem& p) {
  return p.batch == 0 || p.kv.rows == 0 || p.entries_of(kK) == 0;
}

// Lengths of sequences are data, which a plan does not read.
inline bool has_lengths(const Problem& p) {
  return p.q.varlen || p.q.seqused || p.kv.varlen || p.kv.seqused || p.cache.present();
}

// Addresses of one run, in the order of TensorId; absent = nullptr. Inputs are only read.
struct Buffers {
  std::array<void*, kTensorCount> data{};

  template <class T>
  const T* in(TensorId id) const {
    return static_cast<const T*>(data[id]);
  }
  template <class T>
  T* out(TensorId id) const {
    return static_cast<T*>(data[id]);
  }
};

// Rows of sequence b on one axis: those that count, and where they begin.
struct Sequence {
  int64_t begin = 0;  // first row, from the tensor's first (varlen), or in the batch entry, slot or
                      // pages: 0 but for kv_begin
  int64_t len = 0;    // rows that count (after seqused)
};

inline Sequence sequence(const SeqAxis& axis, const int32_t* cu_seqlens, const int32_t* seqused,
                         int64_t b) {
  Sequence s;
  s.begin = axis.varlen ? cu_seqlens[b] : 0;
  s.len = axis.varlen ? cu_seqlens[b + 1] - s.begin : axis.rows;
  if (axis.seqused) s.len = seqused[b];
  return s;
}
inline Sequence sequence_of(const Problem& p, const Buffers& x, Axis axis, int64_t b) {
  if (axis == Axis::kKey && p.cache.begins)
    return {x.in<int32_t>(kKvBegin)[b], x.in<int32_t>(kSequsedKv)[b]};
  return sequence(p.along(axis), x.in<int32_t>(cu_seqlens_of(axis)),
                  x.in<int32_t>(seqused_of(axis)), b);
}
inline Sequence q_sequence(const Problem& p, const Buffers& x, int64_t b) {
  return sequence_of(p, x, Axis::kQuery, b);
}
inline Sequence kv_sequence(const Problem& p, const Buffers& x, int64_t b) {
  return sequence_of(p, x, Axis::kKey, b);
}

// Bits of tree_mask of a query: which of the sequence's new keys, the last ones, it sees.
inline constexpr int64_t kMostInTree = 64;
inline uint64_t tree_bits(const Problem& p, const Buffers& x, int64_t b, int64_t row) {
  const Layout& tree = p.layout[kTreeMask];
  const int32_t* const words = x.in<int32_t>(kTreeMask) + b * tree.batch + row * tree.row;
  return static_cast<uint32_t>(words[0]) | uint64_t{static_cast<uint32_t>(words[1])} << 32;
}
// Does such a query see key j, where the new ones begin at `first`?
inline bool tree_shows(uint64_t bits, int64_t first, int64_t j) {
  return j < first || (j - first < kMostInTree && (bits >> (j - first) & 1) != 0);
}

// Its keys when the new ones are among them.
inline Sequence kv_sequence_after(const Problem& p, const Buffers& x, int64_t b) {
  Sequence keys = kv_sequence(p, x, b);
  if (p.appends()) keys.len += sequence_of(p, x, Axis::kNew, b).len;
  return keys;
}

// Rotary positions: of the first row of sequence b that is quantised, or appended; and how many
// rows from there on are rotated, of keys or of queries.
inline int64_t first_position(const Problem& p, const Buffers& x, int64_t b) {
  if (p.rotation.positioned) return x.in<int32_t>(kRotaryPosition)[b];
  return p.appends() ? x.in<int32_t>(kSequsedKv)[b] : 0;
}
inline int64_t most_positions(const Problem& p, const Buffers& x, int64_t b) {
  if (!p.appends()) return sequence_of(p, x, Axis::kToken, b).len;
  const int64_t queries = q_sequence(p, x, b).len;
  return std::max(sequence_of(p, x, Axis::kNew, b).len,
                  p.has_positions() ? queries : std::min<int64_t>(queries, 1));
}

// Where a row of a sequence's keys lies, counted as Sequence::begin is: which batch entry, slot or
// page, and the row in that.
struct KeyPlace {
  int64_t entry = 0;
  int64_t row = 0;
};
inline KeyPlace key_place(const Problem& p, const Buffers& x, int64_t b, int64_t row) {
  const KvCache& cache = p.cache;
  if (cache.slots) return {x.in<int32_t>(kKvBatchIdx)[b], row};
  if (!cache.paged()) return {b, row};
  const int32_t* const pages = x.in<int32_t>(kPageTable) + b * cache.max_pages;
  return {pages[row / cache.page_size], row % cache.page_size};
}

}  // namespace fa3
