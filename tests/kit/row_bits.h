// SPDX-License-Identifier: BSD-3-Clause
// row_bits.h — sequences whose queries are computed in calls of many shapes, to compare the bits
// that a query gets in each.
#pragma once

#include <cmath>
#include <cstring>
#include <fa3/fa3.hpp>
#include <map>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/kit/run.h"

namespace fa3::kit {

// Queries [first, first + count) of a sequence, which see the keys up to their own position.
struct Piece {
  int sequence;
  int64_t first, count;

  int64_t keys() const { return first + count; }
};

// Elements are float or, as BF16, uint16_t; kGroup query heads of each KV head.
template <class T, int64_t kGroup = 2>
class RowBits {
 public:
  using Row = std::vector<uint32_t>;  // O of all heads, and their LSE

  RowBits(fa3_context* context, int sequences, int64_t length) : context_(context) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (int s = 0; s < sequences; ++s) {
      data_.push_back({});
      for (auto& [x, heads] :
           {std::pair{&data_.back().q, kHeads}, std::pair{&data_.back().k, kHeadsKv},
            std::pair{&data_.back().v, kHeadsKv}})
        for (int64_t i = 0; i < length * heads * kDim; ++i) {
          // Some rows and columns are larger, so that maxima grow at different keys.
          const bool large = i / (heads * kDim) % 7 == 0 || i % 5 == 0;
          x->push_back(element_of(normal(random) * (large ? 4.f : 1.f)));
        }
    }
  }

  int32_t batch_invariant = 1;
  int64_t page_size = 0;  // 0: packed keys
  int64_t longer = 0;     // by how much bounds of lengths are larger than they need to be
  double softcap = 0;
  bool sinks = false;

  // The rows of one call of these pieces, packed one after the other.
  std::vector<Row> rows(const std::vector<Piece>& pieces) {
    Call call(*this, pieces);
    fa3_forward_args args = call.args();
    args.batch_invariant = batch_invariant;
    args.softcap = softcap;
    const std::vector<float> of_heads(kHeads, 2.5f);
    if (sinks) args.sinks = fa3_dense(of_heads.data(), FA3_F32, 1, &kHeads);
    EXPECT_EQ(run_planned(context_, args, std::byte{0xFF}), FA3_OK) << fa3_last_error();
    return call.rows();
  }
  // How many rows of the call differ from what the same queries got before.
  int count_changes(const std::vector<Piece>& pieces) {
    const std::vector<Row> found = rows(pieces);
    int changes = 0;
    size_t at = 0;
    for (const Piece& p : pieces)
      for (int64_t i = 0; i < p.count; ++i, ++at) {
        const auto [known, first] = known_.try_emplace({p.sequence, p.first + i}, found[at]);
        changes += !first && known->second != found[at] ? 1 : 0;
      }
    return changes;
  }

 private:
  static constexpr int64_t kHeadsKv = 2, kHeads = kGroup * kHeadsKv, kDim = 64;
  struct Sequence {
    std::vector<T> q, k, v;
  };

  static constexpr bool kF32 = std::is_same_v<T, float>;
  static constexpr fa3_dtype kType = kF32 ? FA3_F32 : FA3_BF16;

  static uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  static uint32_t bits_of(uint16_t x) { return x; }
  static T element_of(float x) {
    if constexpr (kF32) return x;
    return static_cast<T>(bits_of(x) >> 16);
  }

  // Tensors of a call; pages are in reverse order.
  class Call {
   public:
    Call(const RowBits& of, const std::vector<Piece>& pieces) : of_(of) {
      cu_q_.push_back(0), cu_kv_.push_back(0);
      for (const Piece& p : pieces) {
        const Sequence& data = of.data_[static_cast<size_t>(p.sequence)];
        append(q_, data.q, p.first * kHeads * kDim, p.count * kHeads * kDim);
        used_.push_back(static_cast<int32_t>(p.keys()));
        cu_q_.push_back(cu_q_.back() + static_cast<int32_t>(p.count));
        cu_kv_.push_back(cu_kv_.back() + used_.back());
        longest_q_ = std::max(longest_q_, p.count), longest_kv_ = std::max(longest_kv_, p.keys());
        if (of.page_size == 0) {
          append(k_, data.k, 0, p.keys() * kRow);
          append(v_, data.v, 0, p.keys() * kRow);
        }
      }
      o_.assign(q_.size(), element_of(NAN));
      lse_.assign(q_.size() / kDim, 0);
      if (of.page_size > 0) make_pages(pieces);
    }
    fa3_forward_args args() {
      const auto batch = static_cast<int64_t>(used_.size()), rows = int64_t{cu_q_.back()};
      fa3_forward_args a{};
      a.struct_size = sizeof a;
      a.q = tensor(q_.data(), kType, {rows, kHeads, kDim});
      a.o = tensor(o_.data(), kType, {rows, kHeads, kDim});
      a.lse = tensor(lse_.data(), FA3_F32, {kHeads, rows});
      a.cu_seqlens_q = tensor(cu_q_.data(), FA3_I32, {batch + 1});
      a.max_seqlen_q = longest_q_ + of_.longer;
      a.max_seqlen_kv = longest_kv_ + of_.longer;
      a.mask = FA3_MASK_CAUSAL;
      if (of_.page_size > 0) {
        a.page_table = tensor(table_.data(), FA3_I32, {batch, max_pages_});
        a.seqused_kv = tensor(used_.data(), FA3_I32, {batch});
        const int64_t pages = batch * max_pages_;
        a.k = tensor(k_.data(), kType, {pages, of_.page_size, kHeadsKv, kDim});
        a.v = tensor(v_.data(), kType, {pages, of_.page_size, kHeadsKv, kDim});
        a.max_seqlen_kv = 0;
      } else {
        a.cu_seqlens_kv = tensor(cu_kv_.data(), FA3_I32, {batch + 1});
        a.k = tensor(k_.data(), kType, {cu_kv_.back(), kHeadsKv, kDim});
        a.v = tensor(v_.data(), kType, {cu_kv_.back(), kHeadsKv, kDim});
      }
      return a;
    }
    std::vector<Row> rows() const {
      std::vector<Row> all;
      const size_t rows = lse_.size() / kHeads;
      for (size_t r = 0; r < rows; ++r) {
        Row row;
        for (size_t i = r * kHeads * kDim; i < (r + 1) * kHeads * kDim; ++i)
          row.push_back(bits_of(o_[i]));
        for (size_t h = 0; h < kHeads; ++h) row.push_back(bits_of(lse_[h * rows + r]));
        all.push_back(row);
      }
      return all;
    }

   private:
    static constexpr int64_t kRow = kHeadsKv * kDim;

    static void append(std::vector<T>& to, const std::vector<T>& from, int64_t first,
                       int64_t count) {
      to.insert(to.end(), from.begin() + first, from.begin() + first + count);
    }
    void make_pages(const std::vector<Piece>& pieces) {
      const int64_t size = of_.page_size;
      max_pages_ = (longest_kv_ + size - 1) / size;
      const auto pages = static_cast<int64_t>(pieces.size()) * max_pages_;
      k_.assign(static_cast<size_t>(pages * size * kRow), element_of(NAN)), v_ = k_;
      for (int64_t i = 0; i < pages; ++i) table_.push_back(static_cast<int32_t>(pages - 1 - i));
      for (size_t b = 0; b < pieces.size(); ++b) {
        const Sequence& data = of_.data_[static_cast<size_t>(pieces[b].sequence)];
        for (int64_t key = 0; key < pieces[b].keys(); ++key) {
          const int32_t page =
              table_[b * static_cast<size_t>(max_pages_) + static_cast<size_t>(key / size)];
          const int64_t to = (page * size + key % size) * kRow;
          std::copy_n(data.k.begin() + key * kRow, kRow, k_.begin() + to);
          std::copy_n(data.v.begin() + key * kRow, kRow, v_.begin() + to);
        }
      }
    }

    const RowBits& of_;
    std::vector<T> q_, k_, v_, o_;
    std::vector<float> lse_;
    std::vector<int32_t> cu_q_, cu_kv_, used_, table_;
    int64_t longest_q_ = 0, longest_kv_ = 0, max_pages_ = 0;
  };

  fa3_context* context_;
  std::vector<Sequence> data_;
  std::map<std::pair<int, int64_t>, Row> known_;
};

// Every way in which a server may compute the last queries of sequence 0: a prompt, alone and among
// others, chunks of it, tokens and drafts of a few, in batches of any order, from pages. Returns
// how many rows had other bits than in another call.
template <class T>
int count_changes(RowBits<T>& bits, int64_t length, const std::vector<int64_t>& pages) {
  int changes = 0;
  const int64_t last = length - 1, half = length / 2;
  const auto call = [&](const std::vector<Piece>& pieces) {
    changes += bits.count_changes(pieces);
  };
  call({{0, length - 150, 150}});
  call({{0, last, 1}});
  call({{0, last - 4, 5}});
  call({{0, last - 19, 20}});
  call({{0, length - 75, 75}});
  call({{0, half, 1}});
  call({{0, half - 3, 70}});
  call({{1, 0, 30}, {0, last, 1}, {2, half, 1}, {1, half, 3}, {2, 5, 1}});
  call({{2, half, 1}, {2, last, 1}, {0, last, 1}});
  call({{1, 0, 100}, {0, last - 40, 41}, {2, last, 1}});
  bits.longer = 3000;
  call({{0, last, 1}, {2, half, 1}});
  call({{0, last - 70, 71}});
  bits.longer = 0;
  for (const int64_t page : pages) {
    bits.page_size = page;
    call({{2, 5, 1}, {0, last, 1}, {1, half, 3}});
    call({{1, 0, 30}, {0, last - 66, 67}, {2, half, 1}});
  }
  bits.page_size = 0;
  return changes;
}

}  // namespace fa3::kit
