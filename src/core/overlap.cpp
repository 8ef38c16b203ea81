// SPDX-License-Identifier: BSD-3-Clause
// overlap.cpp — overlap as a question about sums: two views share a byte exactly when Σ
// coefficient·x = target has a solution with 0 ≤ x ≤ limit for each term, one term per dimension
// and per byte within an element.
#include "core/overlap.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace fa3 {
namespace {

using Wide = __int128;  // a sum of two 63-bit spans and a difference of addresses needs 65 bits

// Budget of the search. Ordinary views need a few dozen nodes; this many take some milliseconds.
constexpr int kMaxNodes = 100'000;

struct Term {
  Wide coefficient;  // > 0
  Wide limit;        // > 0: the variable runs over 0…limit
};

// Is there a choice of the variables with Σ coefficient·x = target?
class SumSearch {
 public:
  void add(Wide coefficient, Wide limit) {
    if (coefficient > 0 && limit > 0) terms_[count_++] = {coefficient, limit};
  }

  Overlap solve(Wide target) {
    merge();
    // reach_[i], gcd_[i]: largest value and common divisor of the sums of terms i…count−1.
    reach_[count_] = 0;
    gcd_[count_] = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      reach_[i] = reach_[i + 1] + terms_[i].coefficient * terms_[i].limit;
      gcd_[i] = gcd(gcd_[i + 1], terms_[i].coefficient);
    }
    nodes_ = 0;
    return search(0, target);
  }

 private:
  static Wide gcd(Wide a, Wide b) { return b == 0 ? a : gcd(b, a % b); }

  // Sorts by coefficient, largest first, and joins terms whose sums form one unbroken progression:
  // dense dimensions collapse into their innermost one, bytes within an element included.
  void merge() {
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& a, const Term& b) { return a.coefficient < b.coefficient; });
    int merged = 0;
    for (int i = 0; i < count_; ++i) {
      if (merged > 0) {
        Term& inner = terms_[merged - 1];
        const Wide ratio = terms_[i].coefficient / inner.coefficient;
        if (terms_[i].coefficient % inner.coefficient == 0 && ratio <= inner.limit + 1) {
          inner.limit += ratio * terms_[i].limit;
          continue;
        }
      }
      terms_[merged++] = terms_[i];
    }
    count_ = merged;
    std::reverse(terms_.begin(), terms_.begin() + count_);
  }

  // Depth first over terms i…count−1, whose sum must be target. Each variable is confined to what
  // the smaller terms can still make up for: two or three values when strides nest, as those of
  // tensors do.
  Overlap search(int i, Wide target) {
    if (++nodes_ > kMaxNodes) return Overlap::kUnknown;
    if (target < 0 || target > reach_[i]) return Overlap::kDisjoint;
    if (target == 0) return Overlap::kShared;
    if (i == count_ || target % gcd_[i] != 0) return Overlap::kDisjoint;
    if (i + 1 == count_) return Overlap::kShared;  // in reach and a multiple of the one coefficient
    const auto [coefficient, limit] = terms_[i];
    const Wide missing = target - reach_[i + 1];  // at least this much must come from term i
    const Wide first = missing <= 0 ? 0 : (missing + coefficient - 1) / coefficient;
    const Wide last = std::min(limit, target / coefficient);
    for (Wide x = first; x <= last; ++x) {
      const Overlap found = search(i + 1, target - x * coefficient);
      if (found != Overlap::kDisjoint) return found;
    }
    return Overlap::kDisjoint;
  }

  std::array<Term, 2 * FA3_MAX_RANK + 2> terms_;
  std::array<Wide, 2 * FA3_MAX_RANK + 3> reach_;
  std::array<Wide, 2 * FA3_MAX_RANK + 3> gcd_;
  int count_ = 0;
  int nodes_ = 0;
};

}  // namespace

bool View::empty() const {
  return std::any_of(extent, extent + rank, [](int64_t n) { return n == 0; });
}

int64_t View::span_bytes() const {
  if (empty()) return 0;
  int64_t span = element;
  for (int d = 0; d < rank; ++d) span += (extent[d] - 1) * stride[d];
  return span;
}

// Element i of a and j of b share a byte when a + Σ i·s + x = b + Σ j·t + y for bytes x, y within
// the elements. With j' = extent − 1 − j and y' = size − 1 − y every coefficient is positive.
Overlap overlap(const View& a, const View& b) {
  if (a.empty() || b.empty()) return Overlap::kDisjoint;
  const Wide a_begin = a.base, a_end = a_begin + a.span_bytes();
  const Wide b_begin = b.base, b_end = b_begin + b.span_bytes();
  if (a_end <= b_begin || b_end <= a_begin) return Overlap::kDisjoint;
  SumSearch sum;
  for (int d = 0; d < a.rank; ++d) sum.add(a.stride[d], a.extent[d] - 1);
  for (int d = 0; d < b.rank; ++d) sum.add(b.stride[d], b.extent[d] - 1);
  sum.add(1, a.element - 1);
  sum.add(1, b.element - 1);
  return sum.solve(b_end - 1 - a_begin);
}

// Two different elements i, j share a byte when Σ (i − j)·s = ±bytes. Let d be the first dimension
// in which they differ, i ahead: with e = i − j + extent − 1 in the dimensions after d, and i_d −
// j_d = 1 + f, every term is positive. One search per d; a byte within each element as in
// overlap().
Overlap self_overlap(const View& view) {
  if (view.empty()) return Overlap::kDisjoint;
  Overlap worst = Overlap::kDisjoint;
  for (int d = 0; d < view.rank; ++d) {
    if (view.extent[d] == 1) continue;
    if (view.stride[d] == 0) return Overlap::kShared;
    SumSearch sum;
    Wide target = -static_cast<Wide>(view.stride[d]) + view.element - 1;
    sum.add(view.stride[d], view.extent[d] - 2);
    for (int inner = d + 1; inner < view.rank; ++inner) {
      const Wide reach = view.extent[inner] - 1;
      sum.add(view.stride[inner], 2 * reach);
      target += reach * view.stride[inner];
    }
    sum.add(1, 2 * (view.element - 1));
    const Overlap found = sum.solve(target);
    if (found == Overlap::kShared) return found;
    if (found == Overlap::kUnknown) worst = found;
  }
  return worst;
}

}  // namespace fa3
