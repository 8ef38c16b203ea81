// SPDX-License-Identifier: BSD-3-Clause
// overlap_test.cpp — the overlap test against an enumeration of bytes, and on the views that
// callers have.
#include "core/overlap.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <set>
#include <vector>

namespace fa3 {
namespace {

View view(uintptr_t base, int64_t element, std::initializer_list<int64_t> extent,
          std::initializer_list<int64_t> stride_bytes) {
  View v;
  v.base = base;
  v.element = element;
  v.rank = static_cast<int>(extent.size());
  std::copy(extent.begin(), extent.end(), v.extent);
  std::copy(stride_bytes.begin(), stride_bytes.end(), v.stride);
  return v;
}

// Addresses of all elements, one by one.
std::vector<uintptr_t> elements(const View& v) {
  std::vector<uintptr_t> all{v.base};
  for (int d = 0; d < v.rank; ++d) {
    std::vector<uintptr_t> next;
    for (uintptr_t address : all) {
      for (int64_t i = 0; i < v.extent[d]; ++i) next.push_back(address + i * v.stride[d]);
    }
    all = std::move(next);
  }
  return all;
}

std::set<uintptr_t> bytes(const View& v) {
  std::set<uintptr_t> all;
  for (uintptr_t address : elements(v)) {
    for (int64_t x = 0; x < v.element; ++x) all.insert(address + x);
  }
  return all;
}

bool share_bytes(const View& a, const View& b) {
  const std::set<uintptr_t> of_a = bytes(a);
  for (uintptr_t byte : bytes(b)) {
    if (of_a.count(byte) != 0) return true;
  }
  return false;
}

bool elements_share_bytes(const View& v) {
  return bytes(v).size() < elements(v).size() * static_cast<size_t>(v.element);
}

View random_view(std::mt19937& random) {
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  View v;
  v.element = int64_t{1} << draw(0, 2);
  v.base = static_cast<uintptr_t>(1000 + draw(0, 40) * (draw(0, 1) ? v.element : 1));
  v.rank = static_cast<int>(draw(0, 4));
  for (int d = 0; d < v.rank; ++d) {
    v.extent[d] = draw(0, 9) == 0 ? 0 : draw(1, 4);
    v.stride[d] = draw(0, 20) * v.element;
  }
  return v;
}

TEST(Overlap, RandomViews_AsEnumeration) {
  std::mt19937 random(1);
  int shared = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const View a = random_view(random), b = random_view(random);
    const bool expected = share_bytes(a, b);
    ASSERT_EQ(overlap(a, b), expected ? Overlap::kShared : Overlap::kDisjoint) << "case " << i;
    ASSERT_EQ(overlap(b, a), overlap(a, b)) << "case " << i;
    // How often comparing the ranges was not enough.
    if (expected) ++shared;
    if (!expected && !a.empty() && !b.empty() && a.base < b.base + b.span_bytes() &&
        b.base < a.base + a.span_bytes())
      ++apart;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart, 1000);
}

TEST(SelfOverlap, RandomViews_AsEnumeration) {
  std::mt19937 random(2);
  int shared = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const View v = random_view(random);
    const bool expected = elements_share_bytes(v);
    ASSERT_EQ(self_overlap(v), expected ? Overlap::kShared : Overlap::kDisjoint) << "case " << i;
    (expected ? shared : apart) += v.rank >= 2;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart, 1000);
}

// One buffer (tokens, 3, heads, dim) of 2-byte elements, and its parts. Far too large to enumerate.
constexpr int64_t kTokens = 1 << 20, kHeads = 40, kDim = 128, kRow = kHeads * kDim * 2;

TEST(Overlap, VarlenProjection_PartsAreDisjoint) {
  const auto part = [](int64_t i) {
    return view(0x1000 + i * kRow, 2, {kTokens, kHeads, kDim}, {3 * kRow, kDim * 2, 2});
  };
  EXPECT_EQ(overlap(part(0), part(1)), Overlap::kDisjoint);
  EXPECT_EQ(overlap(part(0), part(2)), Overlap::kDisjoint);
  EXPECT_EQ(overlap(part(2), part(1)), Overlap::kDisjoint);
  EXPECT_EQ(overlap(part(1), part(1)), Overlap::kShared);
  EXPECT_EQ(overlap(part(0), part(3)), Overlap::kShared) << "the next token's first part";
}

TEST(Overlap, HeadsInterleaved_PartsAreDisjoint) {
  // (tokens, heads, 3, dim)
  const auto part = [](int64_t i) {
    return view(0x1000 + i * kDim * 2, 2, {kTokens, kHeads, kDim}, {3 * kRow, 3 * kDim * 2, 2});
  };
  EXPECT_EQ(overlap(part(0), part(1)), Overlap::kDisjoint);
  EXPECT_EQ(overlap(part(1), part(2)), Overlap::kDisjoint);
  EXPECT_EQ(overlap(part(2), part(3)), Overlap::kDisjoint);
  EXPECT_EQ(overlap(part(0), part(3)), Overlap::kShared) << "the next head's first part";
}

TEST(Overlap, OneByteTooFar_IsFound) {
  const View q = view(0x1000, 2, {kTokens, kHeads, kDim}, {3 * kRow, kDim * 2, 2});
  const View k = view(0x1000 + kRow - 1, 2, {kTokens, kHeads, kDim}, {3 * kRow, kDim * 2, 2});
  EXPECT_EQ(overlap(q, k), Overlap::kShared);
}

TEST(Overlap, BatchMajorAndHeadMajorViews) {
  // The same dense (batch 4, seqlen, heads, dim) buffer read as BSHD and as BHSD; and two different
  // halves of heads.
  constexpr int64_t kSeqlen = 8192;
  const View bshd =
      view(0x1000, 2, {4, kSeqlen, kHeads, kDim}, {kSeqlen * kRow, kRow, kDim * 2, 2});
  const View bhsd = view(0x1000, 2, {4, kHeads, kSeqlen, kDim},
                         {kSeqlen * kRow, kSeqlen * kDim * 2, kDim * 2, 2});
  EXPECT_EQ(overlap(bshd, bhsd), Overlap::kShared);
  View low = bshd, high = bshd;
  low.extent[2] = high.extent[2] = kHeads / 2;
  high.base += kHeads / 2 * kDim * 2;
  EXPECT_EQ(overlap(low, high), Overlap::kDisjoint);
  EXPECT_EQ(self_overlap(bshd), Overlap::kDisjoint);
  EXPECT_EQ(self_overlap(bhsd), Overlap::kDisjoint);
}

TEST(Overlap, ElementsOfDifferentSize) {
  // 4-byte numbers in the first half of each 8 bytes, 2-byte ones in the second.
  EXPECT_EQ(overlap(view(64, 4, {1000}, {8}), view(68, 2, {1000, 2}, {8, 2})), Overlap::kDisjoint);
  EXPECT_EQ(overlap(view(64, 4, {1000}, {8}), view(66, 2, {1000, 2}, {8, 2})), Overlap::kShared);
}

TEST(Overlap, LargeSpans_DoNotOverflow) {
  const int64_t far = INT64_MAX / 2;
  const View a = view(8, 4, {3}, {far / 4 * 4});
  const View b = view(8 + 4, 4, {3}, {far / 4 * 4});
  EXPECT_EQ(overlap(a, b), Overlap::kDisjoint);
  EXPECT_EQ(overlap(a, a), Overlap::kShared);
  EXPECT_EQ(self_overlap(a), Overlap::kDisjoint);
}

TEST(Overlap, HostileStrides_EndInBoundedTime) {
  // Nearly equal large strides on both sides: no pruning helps, so the limit must.
  View a = view(1 << 20, 4, {1000, 1000, 1000, 1000, 1}, {4000036, 4000012, 3999988, 3999972, 4});
  View b =
      view((1 << 20) + 4, 4, {1000, 1000, 1000, 1000, 1}, {8000072, 8000024, 7999976, 7999944, 4});
  EXPECT_NE(overlap(a, b), Overlap::kDisjoint);
  a.element = b.element = 1;
  for (int d = 0; d < 4; ++d) a.stride[d] *= 6, b.stride[d] *= 6;
  b.base = a.base +
           3;  // all sums are multiples of 6: disjoint, found or given up, but not called shared
  EXPECT_NE(overlap(a, b), Overlap::kShared);
}

}  // namespace
}  // namespace fa3
