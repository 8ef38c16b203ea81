// SPDX-License-Identifier: BSD-3-Clause
// softmax.h — online softmax over the two rows of S that a thread shares with its quad: running
// maximum and sum, in the base-2 log domain. A row without a visible key so far has max = −inf and
// uses 0 as the offset of its exponents, so that P is exp2(−inf) = 0 and never −inf + inf.
#pragma once

#include "device/attn/conventions.h"
#include "device/attn/tile_range.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/registers.h"
#include "device/ptx/vec.h"
#include "device/ptx/warp.h"
#include "device/types.h"
#include "device/warp/softmax_variant.h"

namespace fa3 {

// P may reach 2 to this power: where O is rescaled lazily, its maximum is less by what p_log2 is.
inline constexpr float kMostLog2 = 8.f;

// A number for each of a thread's two rows.
struct PerRow {
  float row[2];

  FA3_DEV float operator[](int h) const { return row[h]; }
};

// Integer scores up to 2^22 in magnitude become FP32 by one addition, of the bits of 1.5 · 2^23:
// the sum of both, exact. (A conversion runs where the exponentials do, and as slowly.)
inline constexpr float kScoreBias = 0x1.8p23f;
inline constexpr i32 kScoreBiasBits = 0x4B400000;
static_assert(__builtin_bit_cast(i32, kScoreBias) == kScoreBiasBits);

// A score as a number: of an integer that sum. Integers stay what the GEMM wrote until then, since
// maxima of them are as good: so the additions stand among the exponentials, which leave room.
FA3_DEV float number_of(float score) { return score; }
FA3_DEV float number_of(i32 score) {
  return ptx::bits_as<float>(static_cast<u32>(score) + static_cast<u32>(kScoreBiasBits));
}
// Makes a score one with that number, which any has.
FA3_DEV void set_number(float& score, float number) { score = number; }
FA3_DEV void set_number(i32& score, float number) {
  score = static_cast<i32>(ptx::bits_as<u32>(number) - static_cast<u32>(kScoreBiasBits));
}
// Scores in the order in which integers compare, as long as not all are negative; integers always.
FA3_DEV i32 order_of(float score) { return ptx::bits_as<i32>(score); }
FA3_DEV i32 order_of(i32 score) { return score; }

// From this |max·scale_log2| on, its rounding moves exponents by 1 and more.
inline constexpr float kHugeLog2 = 0x1p24f;

FA3_DEV bool is_huge(float log2) { return log2 >= kHugeLog2 || log2 <= -kHugeLog2; }

// What sums and O are multiplied by when a maximum has grown; grown: finite. offset: of exponents.
FA3_DEV float raised_scale(float before, float grown, float offset, bool huge, float scale_log2) {
  return ptx::ex2(huge ? (before - grown) * scale_log2 : ptx::fma(before, scale_log2, -offset));
}

// Natural logarithm of a row's sum of exponentials relative to `max`, which is finite. The product
// in base 2 may overflow where the one in base e does not.
FA3_DEV float row_lse(float max, float sum, float scale_log2) {
  const float log2 = max * scale_log2;
  if (is_huge(log2)) return ptx::fma(max, scale_log2 * kLn2, ptx::lg2(sum) * kLn2);
  return (log2 + ptx::lg2(sum)) * kLn2;
}

// What the rows of O are to be multiplied by when the maximum has grown.
struct RowScale {
  float row[2];
  bool needed;  // for some row of the warp
};

// o[row] *= scale[row].
template <SoftmaxVariant kVariant, int N>
FA3_DEV void rescale_rows(ptx::Acc<N>& o, const RowScale& scale) {
  if (kVariant.lazy_rescale && !scale.needed) return;
  FA3_UNROLL
  for (int i = 0; i < N / 2; ++i) o[i] *= scale.row[i / 2 % 2];
}

template <bool kInteger>
struct ScoreType {
  using Type = float;
};
template <>
struct ScoreType<true> {
  using Type = i32;
};

// What RowSoftmax keeps for SoftmaxVariant::per_row: whether a row's |max·scale_log2| is huge, and
// its sum in chains of keys. Chain 2w + e has the keys 16w + e + 2·(lane % 4) + {0, 8} of every 64.
template <bool kPerRow>
struct RowChains {
  static constexpr int kChains = 8;
  bool huge[2];
  float sum[2][kChains];

  FA3_DEV void reset() {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      huge[h] = false;
      FA3_UNROLL
      for (int i = 0; i < kChains; ++i) sum[h][i] = 0.f;
    }
  }
  FA3_DEV void scale(int h, float by) {
    FA3_UNROLL
    for (int i = 0; i < kChains; ++i) sum[h][i] *= by;
  }
  // p: accumulator i of a tile.
  FA3_DEV void add(int i, float p) { sum[i / 2 % 2][2 * (i / 8 % 4) + i % 2] += p; }
  // Over the quad, whose lanes have keys 2 apart, and then over the chains of 16 keys each.
  FA3_DEV float all(int h, Where where) const {
    float all = 0.f;
    FA3_UNROLL
    for (int w = 0; w < kChains / 2; ++w) {
      float x = sum[h][2 * w] + sum[h][2 * w + 1];
      x += ptx::shfl_xor(x, 1, 32, ~0u, where);
      x += ptx::shfl_xor(x, 2, 32, ~0u, where);
      all += x;
    }
    return all;
  }
};
template <>
struct RowChains<false> {};

// What RowSoftmax keeps for SoftmaxVariant::keeps_greatest: of this thread's columns.
template <bool kKeeps>
struct RowGreatest {
  float row[2];

  FA3_DEV void reset() { row[0] = row[1] = -kInf; }
};
template <>
struct RowGreatest<false> {};

// kBiased: scores are integers, and their numbers greater than they should be by kScoreBias.
template <SoftmaxVariant kVariant, bool kBiased = false>
struct RowSoftmax {
  template <int N>
  using Scores = ptx::Acc<N, typename ScoreType<kBiased>::Type>;

  float max[2];  // of the scores, unscaled; the same in all threads of a quad
  float sum[2];  // of exp2(s·scale_log2 − offset) over this thread's columns
  float offset[2];  // max·scale_log2 − p_log2, where 0 takes the place of a max that is −inf or has
                    // been subtracted from S
  i32 limit[2];  // the bits of the least score that calls for a look at the maxima
  bool huge;     // some |max·scale_log2| of the warp is at least kHugeLog2
  [[no_unique_address]] RowChains<kVariant.per_row> chains;
  [[no_unique_address]] RowGreatest<kVariant.keeps_greatest> greatest;

  FA3_DEV void reset() {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h)
      max[h] = -kInf, sum[h] = 0.f, offset[h] = kMinusPLog2, limit[h] = kAnyScore;
    huge = false;
    if constexpr (kVariant.per_row) chains.reset();
    if constexpr (kVariant.keeps_greatest) greatest.reset();
  }

  // A Q tile's first KV tile, after reset(): S becomes P, unnormalised. The sum is taken before P
  // is rounded for the second GEMM. scale_log2: of scores, not negative.
  template <int N>
  FA3_DEV void start(Scores<N>& s, ptx::Acc<N>& p, PerRow scale_log2, Where where = Where::here()) {
    float grown[2];
    const OwnMaxima own = own_maxima(s);
    if constexpr (kVariant.keeps_greatest) raise_greatest(own, s, where);
    row_maxima(grown, s, own, where);
    set_maxima(grown, s, scale_log2, where);
    exponentials(s, p, scale_log2);
  }

  // The same for a later KV tile; returns what O is to be multiplied by.
  template <int N>
  FA3_DEV RowScale update(Scores<N>& s, ptx::Acc<N>& p, PerRow scale_log2,
                          Where where = Where::here()) {
    if constexpr (kVariant.lazy_rescale && !kVariant.test_first)
      return update_in_passes(s, scale_log2, where);
    const OwnMaxima own = own_maxima(s);
    if constexpr (kVariant.keeps_greatest) raise_greatest(own, s, where);
    RowScale scale{{1.f, 1.f}, true};
    if constexpr (kVariant.test_first) scale.needed = ptx::any(own.reach(limit), ~0u, where);
    if (scale.needed) {
      float grown[2];
      row_maxima(grown, s, own, where);
      if constexpr (kVariant.lazy_rescale)
        scale.needed = ptx::any(grow_much(grown, scale_log2) || huge, ~0u, where);
      if (scale.needed) {
        if constexpr (kVariant.per_row)
          raise_each(scale, grown, s, scale_log2, where);
        else
          raise(scale, grown, s, scale_log2, where);
      }
    }
    exponentials(s, p, scale_log2);
    return scale;
  }

  // Exponentials so far stay above what follows: ptxas does not move them below a branch on their
  // sums, which are never negative.
  FA3_DEV void hold() const {
    if (ptx::any(sum[0] + sum[1] < 0.f)) ptx::nanosleep(0);
  }

  // Adds up the quad's sums; then 1/sum is what O is multiplied by, and lse() may be asked.
  FA3_DEV void finish(Where where = Where::here()) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (kVariant.per_row) {
        sum[h] = chains.all(h, where);
        continue;
      }
      sum[h] += ptx::shfl_xor(sum[h], 1, 32, ~0u, where);
      sum[h] += ptx::shfl_xor(sum[h], 2, 32, ~0u, where);
    }
  }

  // How far a natural score is above what row h's exponents are relative to, in units of log2.
  FA3_DEV float above_offset(int h, float score, PerRow scale_log2) const {
    return ptx::fma(score, kLog2e, -offset_of(h, scale_log2));
  }

  // Row h is to have this maximum and sum, after finish().
  FA3_DEV void set_row(int h, float to, float all, PerRow scale_log2) {
    static_assert(kVariant.per_row && !kBiased && kVariant.p_log2 == 0);
    max[h] = to, sum[h] = all;
    offset[h] = finite(to) * scale_log2[h];
    chains.huge[h] = is_huge(offset[h]);
    if (chains.huge[h]) offset[h] = 0.f;
  }

  // The greatest score of the row in this thread's columns, in natural units; −inf without keys.
  FA3_DEV float greatest_of(int h, PerRow scale_log2) const {
    return greatest.row[h] * (scale_log2[h] * kLn2);
  }

  // Natural logarithm of the row's sum of exponentials; −inf without keys.
  FA3_DEV float lse(int h, PerRow scale_log2) const {
    // The product in base 2 may overflow where the one in base e does not.
    if (is_huge_row(h)) {
      const float greatest = kBiased ? max[h] - kScoreBias : finite(max[h]);
      return ptx::fma(greatest, scale_log2[h] * kLn2, (ptx::lg2(sum[h]) - kPLog2) * kLn2);
    }
    return (offset_of_small(h, scale_log2) + ptx::lg2(sum[h])) * kLn2;
  }

 private:
  // Subtracted everywhere: x − 0 is x for ptxas, x + 0 is not.
  static constexpr float kPLog2 = kVariant.p_log2;
  static constexpr float kMinusPLog2 = 0.f - kPLog2;
  // By how much a maximum grows, in exponents, before O is rescaled; and before maxima are
  // exchanged to see whether it is: less, by more than the rounding of the limit.
  static constexpr float kLazyLog2 = kMostLog2 - kPLog2;
  static constexpr float kTestLog2 = kLazyLog2 - 0.01f;
  static constexpr i32 kAnyScore = -0x7FFFFFFF - 1;
  static constexpr i32 kBiasBits = kBiased ? kScoreBiasBits : 0;

  // This thread's greatest score of each row as integers. Scores compare as their bits do unless
  // all are negative.
  struct OwnMaxima {
    i32 row[2];
    bool known;

    FA3_DEV bool reach(const i32 (&limit)[2]) const {
      return static_cast<bool>((row[0] >= limit[0]) | (row[1] >= limit[1]));
    }
  };

  FA3_DEV static float finite(float max) { return max == -kInf ? 0.f : max; }
  // What exponents are relative to, of scores as numbers; where no |max·scale_log2| is huge.
  FA3_DEV float offset_of_small(int h, PerRow scale_log2) const {
    return kBiased ? -ptx::fma(kScoreBias, scale_log2[h], -offset[h]) : offset[h];
  }
  FA3_DEV bool is_huge_row(int h) const {
    if constexpr (kVariant.per_row) return chains.huge[h];
    return huge;
  }
  FA3_DEV float offset_of(int h, PerRow scale_log2) const {
    if (!is_huge_row(h)) return offset_of_small(h, scale_log2);
    return (kBiased ? max[h] - kScoreBias : finite(max[h])) * scale_log2[h] - kPLog2;
  }

  FA3_DEV bool grows_much(int h, const float (&grown)[2], PerRow scale_log2) const {
    return !((grown[h] - max[h]) * scale_log2[h] <= kLazyLog2);
  }
  FA3_DEV bool grow_much(const float (&grown)[2], PerRow scale_log2) const {
    return grows_much(0, grown, scale_log2) || grows_much(1, grown, scale_log2);
  }

  // update() without the test. Scores are written in the branch in front of the maxima only, by a
  // second pass: with that behind them, ptxas orders the step in a way that costs 3 % and more at
  // head dim 64.
  template <int N>
  FA3_DEV RowScale update_in_passes(ptx::Acc<N>& s, PerRow scale_log2, Where where) {
    static_assert(!kBiased);
    RowScale scale{{1.f, 1.f}, true};
    bool again = false;
    FA3_NO_UNROLL
    do {
      float grown[2];
      const bool negative = integer_maxima(grown, own_maxima(s));
      if (ptx::any(static_cast<bool>(negative | huge), ~0u, where)) {
        float_maxima(grown, s);
        if (huge) {
          over_quad(grown, where);
          raise(scale, grown, s, scale_log2, where);
          break;
        }
      }
      over_quad(grown, where);
      scale.needed = ptx::any(grow_much(grown, scale_log2), ~0u, where);
      again = false;
      if (scale.needed) {
        const float log2[2] = {finite(grown[0]) * scale_log2[0], finite(grown[1]) * scale_log2[1]};
        again = huge = ptx::any(is_huge(log2[0]) || is_huge(log2[1]), ~0u, where);
        FA3_UNROLL
        for (int h = 0; h < 2; ++h) {
          if (huge) break;
          scale.row[h] = ptx::ex2(ptx::fma(max[h], scale_log2[h], -log2[h]));
          max[h] = grown[h], offset[h] = log2[h] - kPLog2;
          sum[h] *= scale.row[h];
        }
      }
    } while (again);
    FA3_UNROLL
    for (int h = 0; h < 2; ++h)
      offset[h] = huge ? kMinusPLog2 : finite(max[h]) * scale_log2[h] - kPLog2;
    exponentials(s, s, scale_log2);
    return scale;
  }

  template <int N>
  FA3_DEV void exponentials(const Scores<N>& s, ptx::Acc<N>& p, PerRow scale_log2) {
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int h = i / 2 % 2;
      p[i] = ptx::ex2(ptx::fma(number_of(s[i]), scale_log2[h], -offset[h]));
      if constexpr (kVariant.per_row)
        chains.add(i, p[i]);
      else
        sum[h] += p[i];
    }
  }

  // The maxima grow.
  template <int N>
  FA3_DEV void raise(RowScale& scale, const float (&grown)[2], Scores<N>& s, PerRow scale_log2,
                     Where where) {
    const float before[2] = {max[0], max[1]}, old[2] = {offset[0], offset[1]};
    set_maxima(grown, s, scale_log2, where);
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      // Biased: offsets are large, and their rounding is a part of O.
      const float exponent = huge ? (before[h] - finite(max[h])) * scale_log2[h]
                             : kBiased
                                 ? old[h] - offset[h]
                                 : ptx::fma(before[h], scale_log2[h], -(offset[h] - kMinusPLog2));
      scale.row[h] = ptx::ex2(exponent);
      sum[h] *= scale.row[h];
    }
  }

  // Those maxima grow that grow much, and those that are huge.
  template <int N>
  FA3_DEV void raise_each(RowScale& scale, const float (&grown)[2], Scores<N>& s, PerRow scale_log2,
                          Where where) {
    static_assert(!kBiased && kVariant.p_log2 == 0);
    const float before[2] = {max[0], max[1]};
    float to[2];
    bool grows[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      grows[h] = grows_much(h, grown, scale_log2) || chains.huge[h];
      to[h] = grows[h] ? grown[h] : max[h];
    }
    set_maxima(to, s, scale_log2, where);
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (!grows[h]) continue;
      scale.row[h] =
          raised_scale(before[h], finite(max[h]), offset[h], chains.huge[h], scale_log2[h]);
      chains.scale(h, scale.row[h]);
    }
  }

  // The rounding of a huge max·scale_log2 alone could make P anything up to infinity: then S − max
  // takes the place of S, in this tile and, since every score reaches the limit, in all later ones.
  template <int N>
  FA3_DEV void set_maxima(const float (&to)[2], Scores<N>& s, PerRow scale_log2, Where where) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      max[h] = to[h];
      offset[h] = finite(max[h]) * scale_log2[h] - kPLog2;
      const float least = ptx::fma(kTestLog2, ptx::rcp(scale_log2[h]), max[h]);
      limit[h] = least >= 0.f ? ptx::bits_as<i32>(least) - kBiasBits : kAnyScore;
    }
    huge = ptx::any(is_huge(offset[0]) || is_huge(offset[1]), ~0u, where);
    if constexpr (kVariant.per_row) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) chains.huge[h] = is_huge(offset[h]);
    }
    if (!huge) return;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (!is_huge_row(h)) continue;
      offset[h] = kMinusPLog2;
      limit[h] = kAnyScore;
      FA3_UNROLL
      for (int i = 2 * h; i < N / 2; i += 4) {
        set_number(s[i], number_of(s[i]) - finite(max[h]));
        set_number(s[i + 1], number_of(s[i + 1]) - finite(max[h]));
      }
    }
  }

  // Two chains a row, to hide the latency of each.
  template <int N>
  FA3_DEV static OwnMaxima own_maxima(const Scores<N>& s) {
    if constexpr (!kVariant.lazy_rescale) return {{kAnyScore, kAnyScore}, false};
    const auto order = [&](int i) { return order_of(s[i]); };
    OwnMaxima own{{}, true};
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      i32 chain[2] = {order(2 * h), order(2 * h + 1)};
      FA3_UNROLL
      for (int i = 2 * h + 4; i < N / 2; i += 4) {
        i32& m = chain[i / 4 % 2];
        m = fa3::max(m, fa3::max(order(i), order(i + 1)));
      }
      own.row[h] = fa3::max(chain[0], chain[1]);
    }
    return own;
  }

  template <int N>
  FA3_DEV void raise_greatest(const OwnMaxima& own, const Scores<N>& s, Where where) {
    static_assert(kVariant.test_first && !kBiased);
    i32 bits[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) bits[h] = fa3::max(own.row[h], ptx::bits_as<i32>(greatest.row[h]));
    // Negative ones are in the wrong order: until a score is not.
    if (ptx::any(static_cast<bool>((bits[0] < 0) | (bits[1] < 0)), ~0u, where)) {
      FA3_UNROLL
      for (int i = 0; i < N / 2; ++i)
        greatest.row[i / 2 % 2] = ptx::max(greatest.row[i / 2 % 2], s[i]);
    } else {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) greatest.row[h] = ptx::bits_as<float>(static_cast<u32>(bits[h]));
    }
  }

  // Maxima over the quad, including the running ones.
  template <int N>
  FA3_DEV void row_maxima(float (&to)[2], const Scores<N>& s, const OwnMaxima& own,
                          Where where) const {
    const bool negative = integer_maxima(to, own);
    if constexpr (!kBiased || !kVariant.lazy_rescale) {
      if (!own.known || ptx::any(negative, ~0u, where)) float_maxima(to, s);
    }
    over_quad(to, where);
  }
  // With the running ones. True if all of some row are negative, when they are wrong.
  FA3_DEV bool integer_maxima(float (&to)[2], const OwnMaxima& own) const {
    i32 bits[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      bits[h] = fa3::max(own.row[h] + kBiasBits, ptx::bits_as<i32>(max[h]));
      to[h] = ptx::bits_as<float>(bits[h]);
    }
    return static_cast<bool>((bits[0] < 0) | (bits[1] < 0));
  }
  FA3_DEV static void over_quad(float (&to)[2], Where where) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      to[h] = ptx::max(to[h], ptx::shfl_xor(to[h], 1, 32, ~0u, where));
      to[h] = ptx::max(to[h], ptx::shfl_xor(to[h], 2, 32, ~0u, where));
    }
  }
  template <int N>
  FA3_DEV void float_maxima(float (&to)[2], const Scores<N>& s) const {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      to[h] = max[h];
      FA3_UNROLL
      for (int i = 2 * h; i < N / 2; i += 4)
        to[h] = ptx::max(to[h], ptx::max(number_of(s[i]), number_of(s[i + 1])));
    }
  }
};

}  // namespace fa3
