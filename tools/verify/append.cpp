// SPDX-License-Identifier: BSD-3-Clause
// append.cpp — new keys out of a cache, their rotation in FP64, and the verdict on both.
#include "tools/verify/append.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "tools/verify/axis.h"
#include "tools/verify/cache.h"
#include "tools/verify/naive_input.h"

namespace fa3::verify {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kSpareRows = 2;  // of packed new keys, of no sequence
constexpr int64_t kSparePositions = 1;
constexpr int64_t kMostShift = 5;  // of positions from the number of keys

int64_t new_keys(const Config& c, int64_t b) { return c.append[static_cast<size_t>(b)]; }

Tensor integers(const std::vector<int64_t>& values) {
  Tensor t = make_tensor(FA3_I32, {static_cast<int64_t>(values.size())});
  size_t i = 0;
  generate(t.view, [&] { return static_cast<double>(values[i++]); });
  return t;
}

Tensor copy_of(const Tensor& from) {
  const fa3_tensor& t = from.view;
  constexpr int64_t kAlignment = 16;  // of kernels that are asked about it
  Tensor copy = make_tensor(t.dtype, std::vector<int64_t>(t.shape, t.shape + t.rank),
                            {{}, 0, {}, kAlignment});
  for_each_row(t, [&](const Index& start, void*) {
    Index at = start;
    for (int64_t& c = at[static_cast<size_t>(t.rank - 1)]; c < t.shape[t.rank - 1]; ++c)
      set(copy.view, at, get(t, at));
  });
  return copy;
}

// The rotation of a row of the tables.
struct Rotary {
  const fa3_tensor& cos;
  const fa3_tensor& sin;
  bool pairs;

  struct Pair {
    Index a, b;
  };
  Pair pair_of(const fa3_tensor& t, const Index& row, int64_t i) const {
    const auto last = static_cast<size_t>(t.rank - 1);
    Pair pair{row, row};
    pair.a[last] = pairs ? 2 * i : i;
    pair.b[last] = pairs ? 2 * i + 1 : i + cos.shape[1];
    return pair;
  }
  std::pair<double, double> turned(const fa3_tensor& t, const Pair& at, int64_t position,
                                   int64_t i) const {
    const double x = get(t, at.a), y = get(t, at.b);
    const double c = get(cos, {position, i}), s = get(sin, {position, i});
    return {x * c - y * s, y * c + x * s};
  }

  void turn(const fa3_tensor& t, const Index& row, int64_t position) const {
    for (int64_t i = 0; i < cos.shape[1]; ++i) {
      const Pair at = pair_of(t, row, i);
      const auto [x, y] = turned(t, at, position, i);
      set(t, at.a, x);
      set(t, at.b, y);
    }
  }

  // Changes elements until no rotated one lies so near to the middle of two values of the type that
  // FP32, which a kernel computes in, might round it to the other one.
  void keep_from_ties(const fa3_tensor& t, const Index& row, int64_t position) const {
    if (unit_roundoff(t.dtype) < 0x1p-20) return;
    const auto is_near = [&](double x, double size) {
      return round_to(t.dtype, x - 0x1p-21 * size) != round_to(t.dtype, x + 0x1p-21 * size);
    };
    for (int64_t i = 0; i < cos.shape[1]; ++i) {
      const Pair at = pair_of(t, row, i);
      for (int tries = 0; tries < 50; ++tries) {
        const auto [x, y] = turned(t, at, position, i);
        const double size = std::abs(get(t, at.a)) + std::abs(get(t, at.b));
        if (!is_near(x, size) && !is_near(y, size)) break;
        set(t, at.a, get(t, at.a) * 1.02 + 0x1p-9);
        set(t, at.b, get(t, at.b) * 1.01);
      }
    }
  }
};

bool has_pairs(const Config& c) {
  const auto layout = c.numbers.find("rotary_layout");
  return layout != c.numbers.end() && layout->second != 0;
}

// visit(b, i, row): new key i of sequence b, which is a row as key_sequence counts them.
template <class Visit>
void for_each_new(const Config& c, const fa3_forward_args& after, const Visit& visit) {
  for (int64_t b = 0; b < batch_of(c); ++b) {
    const Sequence keys = key_sequence(after, b);
    for (int64_t i = 0; i < new_keys(c, b); ++i)
      visit(b, i, keys.begin + keys.len - new_keys(c, b) + i);
  }
}

void copy_row(const fa3_tensor& from, Index at, const fa3_tensor& to, Index into) {
  const auto last_from = static_cast<size_t>(from.rank - 1);
  const auto last_to = static_cast<size_t>(to.rank - 1);
  for (int64_t c = 0; c < from.shape[last_from]; ++c) {
    at[last_from] = into[last_to] = c;
    set(to, into, get(from, at));
  }
}

void clear_row(const fa3_tensor& t, Index at) {
  const auto last = static_cast<size_t>(t.rank - 1);
  for (int64_t c = 0; c < t.shape[last]; ++c) {
    at[last] = c;
    set(t, at, kNan);
  }
}

}  // namespace

std::string contradiction_of_append(const Config& c) {
  if (c.append.empty()) {
    if (c.packed_new) return "packed-new needs append";
    if (c.rotary_dim != 0) return "rotary-dim needs append";
    return has_pairs(c) ? "rotary-layout needs append and rotary-dim" : "";
  }
  if (c.backward) return "backward appends nothing";
  if (is_varlen_kv(c)) return "append has no varlen-kv";
  if (is_8_bit(c.dtype)) return "append needs dtype f32, f16 or bf16";
  if (c.layout == Layout::kInterleaved || c.layout == Layout::kBroadcast)
    return "append needs layout dense, heads_first, seq_first or padded";
  if (std::ssize(c.append) != batch_of(c))
    return fmt::format("append has {} numbers, need {}: one for each sequence", c.append.size(),
                       batch_of(c));
  for (int64_t b = 0; b < batch_of(c); ++b) {
    const int64_t keys = axis_kv(c).length(b);
    if (new_keys(c, b) < 0 || new_keys(c, b) > keys)
      return fmt::format("append has {} for sequence {}, need 0 to {}, its keys", new_keys(c, b), b,
                         keys);
    if (!c.packed_new && new_keys(c, b) != c.append[0])
      return "append has numbers that differ, which needs packed-new";
  }
  if (c.packed_kv) return "append has no packed-kv, whose sequences share rows";
  if (c.kv_slots > 0 && c.kv_slots < batch_of(c)) return "append needs slots for all sequences";
  if (c.rotary_dim < 0 || c.rotary_dim % 2 != 0 || c.rotary_dim > c.head_dim_qk)
    return fmt::format("rotary-dim is {}, need an even number up to head-dim", c.rotary_dim);
  if (has_pairs(c) && c.rotary_dim == 0) return "rotary-layout needs rotary-dim";
  return "";
}

void take_new_keys(const Config& c, const MemoryOrder& memory_q, const MemoryOrder& memory_new,
                   Tensors* t) {
  const int64_t batch = batch_of(c);
  std::vector<int64_t> before, after, first{0};
  for (int64_t b = 0; b < batch; ++b) {
    after.push_back(axis_kv(c).length(b));
    before.push_back(after.back() - new_keys(c, b));
    first.push_back(first.back() + new_keys(c, b));
  }
  t->after.seqused_kv = integers(after);
  t->seqused_kv = integers(before);
  if (c.packed_new) t->cu_seqlens_new = integers(first);
  const fa3_forward_args all = [&] {
    Tensors whole = *t;
    whole.seqused_kv = t->after.seqused_kv;
    return forward_args(c, whole);
  }();
  const int64_t rows = c.packed_new ? first.back() + kSpareRows : batch > 0 ? c.append[0] : 0;
  const auto shape = [&](int64_t columns) {
    return c.packed_new ? std::vector<int64_t>{rows, c.heads_kv, columns}
                        : std::vector<int64_t>{batch, rows, c.heads_kv, columns};
  };
  t->k_new = make_tensor(c.dtype, shape(c.head_dim_qk), memory_new);
  t->v_new = make_tensor(c.dtype, shape(c.head_dim_v), memory_new);
  // Positions.
  std::vector<int64_t> position = before;
  Random random(~(c.seed * 8 + 7));
  const bool shifted = c.rotary_dim > 0 && c.seed % 2 == 1;
  for (int64_t& p : position) p += shifted ? random.between(0, kMostShift) : 0;
  if (shifted) t->rotary_position = integers(position);
  if (c.rotary_dim > 0) {
    int64_t positions = kSparePositions;
    for (int64_t b = 0; b < batch; ++b)
      positions = std::max(
          positions, position[b] + kSparePositions + std::max(new_keys(c, b), axis_q(c).length(b)));
    const int32_t type = c.seed % 3 == 1 ? c.dtype : c.seed % 3 == 2 ? FA3_F16 : FA3_F32;
    const std::vector<int64_t> extents{positions, c.rotary_dim / 2};
    t->rotary_cos = make_tensor(type, extents, {{}, memory_q.padding, {}, c.alignment});
    t->rotary_sin = make_tensor(type, extents, {{}, memory_q.padding, {}, c.alignment});
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t i = 0; i < extents[1]; ++i) {
        const double angle = 6.283185307179586 * random.uniform();
        set(t->rotary_cos.view, {p, i}, std::cos(angle));
        set(t->rotary_sin.view, {p, i}, std::sin(angle));
      }
    }
  }
  const Rotary rotary{t->rotary_cos.view, t->rotary_sin.view, has_pairs(c)};

  t->after.k = copy_of(t->k);
  t->after.v = copy_of(t->v);
  for_each_new(c, all, [&](int64_t b, int64_t i, int64_t row) {
    for (int64_t h = 0; h < c.heads_kv; ++h) {
      const Index from = key_index(input_k(all), b, row, h);
      const Index to = c.packed_new ? Index{first[b] + i, h, 0} : Index{b, i, h, 0};
      if (c.rotary_dim > 0) {
        rotary.keep_from_ties(t->k.view, from, position[b] + i);
        copy_row(t->k.view, from, t->after.k.view, from);
      }
      copy_row(t->k.view, from, t->k_new.view, to);
      copy_row(t->v.view, from, t->v_new.view, to);
      clear_row(t->k.view, from);
      clear_row(t->v.view, from);
      if (c.rotary_dim == 0) continue;
      rotary.turn(t->after.k.view, from, position[b] + i);
      t->after.rotated.insert(from);
    }
  });
  t->after.q = t->q;
  if (c.rotary_dim == 0) return;
  t->after.q = copy_of(t->q);
  const bool moves = c.mask != FA3_MASK_FULL || c.numbers.contains("attention_chunk");
  for (int64_t b = 0; b < batch; ++b) {
    const Sequence queries = sequence(t->q.view, t->cu_seqlens_q.view, t->seqused_q.view, b);
    for (int64_t i = 0; i < queries.len; ++i)
      for (int64_t h = 0; h < c.heads_q; ++h) {
        const Index at = token_index(t->q.view, b, queries.begin + i, h);
        const int64_t of_row = position[b] + (moves ? i : 0);
        rotary.keep_from_ties(t->q.view, at, of_row);
        copy_row(t->q.view, at, t->after.q.view, at);
        rotary.turn(t->after.q.view, at, of_row);
      }
  }
}

fa3_forward_args after_appending(fa3_forward_args args, const Tensors& t) {
  if (t.k_new.view.rank == 0) return args;
  args.q = t.after.q.view, args.k = t.after.k.view, args.v = t.after.v.view;
  args.seqused_kv = t.after.seqused_kv.view;
  args.k_new = args.v_new = args.cu_seqlens_new = {};
  args.rotary_cos = args.rotary_sin = args.rotary_position = {};
  args.rotary_layout = 0;
  return args;
}

std::vector<OutputResult> compare_appended(const Config& c, const Tensors& t) {
  std::vector<OutputResult> results;
  if (t.k_new.view.rank == 0) return results;
  const auto compare = [&](const char* name, const Tensor& written, const Tensor& wanted,
                           const std::set<Index>& rotated) {
    OutputResult result;
    result.name = name;
    const fa3_tensor& x = written.view;
    double worst = -1;
    for_each_row(x, [&](const Index& start, void*) {
      Index at = start;
      const bool is_rotated = rotated.contains(start);
      double largest = 0;
      for (Index c = start; is_rotated && c[static_cast<size_t>(x.rank - 1)] < x.shape[x.rank - 1];
           ++c[static_cast<size_t>(x.rank - 1)])
        largest = std::max(largest, std::abs(get(wanted.view, c)));
      for (int64_t& i = at[static_cast<size_t>(x.rank - 1)]; i < x.shape[x.rank - 1]; ++i) {
        const double ours = get(x, at), want = get(wanted.view, at);
        const bool both_nan = std::isnan(ours) && std::isnan(want);
        const double error = both_nan ? 0 : std::abs(ours - want);
        const double bound =
            is_rotated ? 2 * unit_roundoff(c.dtype) * std::abs(want) + 0x1p-21 * largest : 0;
        const bool ok = both_nan || error <= bound;
        result.ok = result.ok && ok;
        const double closeness = ok ? error : std::numeric_limits<double>::infinity();
        if (!(closeness > worst)) continue;
        worst = closeness;
        result.max_err = error, result.bound = bound, result.ours = ours, result.reference = want;
        result.where = fmt::format("[{}, {}, {}, {}]", at[0], at[1], at[2], at[3]);
      }
    });
    results.push_back(std::move(result));
  };
  compare("k", t.k, t.after.k, t.after.rotated);
  compare("v", t.v, t.after.v, {});
  return results;
}

}  // namespace fa3::verify
