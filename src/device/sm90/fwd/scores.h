// SPDX-License-Identifier: BSD-3-Clause
// scores.h — how Q·Kᵀ becomes scores, by the type of Q and K: 16 bits, E4M3 codes, INT8 codes that
// stay integers up to the exponential, and INT8 codes whose scores a function or functor looks at.
// Each way is a struct that holds S, the place of P, and the scales of codes, with these functions;
// c is the consumer:
//   begin(c, work)        before a Q tile's first KV tile
//   s(), p()              what softmax reads and writes
//   apply(args, s)        score function and what k_offset adds
//   scale_log2(args)      of exponents
//   hold(softmax)         exponentials that ptxas would sink stay where they are
//   add_offset(lse, c, work, row)    what k_offset adds to LSE
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/wgmma.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/scales.h"
#include "device/types.h"
#include "device/warp/element.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// A score functor, and what it reads of the thread's two rows.
template <class Functor>
struct RowFunctor {
  typename Functor::Row rows[2];

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work, int h) {
    rows[h] = Functor::row(c.args.elements, place_of(c.args, work), c.row_of(work) + 8 * h);
  }
  template <class S>
  FA3_DEV void apply(S& s, i32 first_key) const {
    apply_scores<Functor>(s, rows, first_key);
  }
};
template <>
struct RowFunctor<SameScore> {
  template <class C>
  FA3_DEV void begin(const C&, const FwdWork&, int) {}
  template <class S>
  FA3_DEV void apply(S&, i32) const {}
};

// S as the tensor cores write it, in whose place P comes.
template <FwdConfig kCfg, class Functor>
struct Scores16 {
  static constexpr bool kBiased = false;
  using Acc = ptx::AccFor<kCfg.types.qk, kCfg.tile.kv>;
  using P = ptx::Acc<kCfg.tile.kv>;
  Acc acc;
  RowFunctor<Functor> functor;
  NoScales<kCfg> scales;

  template <class C>
  FA3_DEV void begin(const C&, const FwdWork&) {}
  FA3_DEV Acc& s() { return acc; }
  FA3_DEV P& p() { return acc; }
  FA3_DEV void apply(const FwdArgs& args, P& s) const {
    ScoreFunction<kCfg.scores.kind>{{{args.score_factor, args.score_factor}}}.apply(s);
  }
  FA3_DEV PerRow scale_log2(const FwdArgs& args) const {
    return {{args.scale_log2, args.scale_log2}};
  }
  template <class Softmax>
  FA3_DEV static void hold(const Softmax&) {}
  template <class C>
  FA3_DEV void add_offset(float&, const C&, const FwdWork&, i32) const {}
};

// S of codes: their scales are a factor of a row's scores.
template <FwdConfig kCfg, class Functor>
struct ScoresE4m3 {
  static constexpr bool kBiased = false;
  static constexpr bool kPlain = kCfg.scores.kind == ScoreKind::kPlain;
  // What k_offset adds to scores is added to LSE, or where a softcap follows, to the scores.
  static constexpr bool kShifts = kCfg.scores.kind == ScoreKind::kSoftcap;
  using Acc = ptx::AccFor<kCfg.types.qk, kCfg.tile.kv>;
  using P = ptx::Acc<kCfg.tile.kv>;
  Acc acc;
  RowFunctor<Functor> functor;
  typename ScalesOf<kCfg>::Type scales;
  PerRow factor;  // score_factor or scale_log2 of FwdArgs, times the scales of Q and K
  PerRow shift;   // with a softcap: what is added to scores before it

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work) {
    const FwdArgs& args = c.args;
    scales.begin(args, work, c.row_of(work), max(c.visit.own.end - 1, 0));
    const PerRow scale = code_scale<kCfg>(args, work, c.row_of(work));
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      factor.row[h] =
          kPlain ? finite_factor(scale[h] * args.scale_log2) : scale[h] * args.score_factor;
      if constexpr (kShifts) {
        const i32 row = min(c.row_of(work) + 8 * h, work.q_used - 1);
        shift.row[h] = score_offset_at(args, work, row) * args.elements.slope_factor;
      }
    }
  }
  FA3_DEV Acc& s() { return acc; }
  FA3_DEV P& p() { return acc; }
  FA3_DEV void apply(const FwdArgs&, P& s) const {
    scales.scale_scores(s);
    const ScoreFunction<kCfg.scores.kind> function{scales.times_k(factor)};
    if constexpr (kShifts) {
      function.apply(s, shift);
    } else {
      function.apply(s);
    }
  }
  FA3_DEV PerRow scale_log2(const FwdArgs& args) const {
    return kPlain ? factor : PerRow{{args.scale_log2, args.scale_log2}};
  }
  template <class Softmax>
  FA3_DEV static void hold(const Softmax&) {}
  template <class C>
  FA3_DEV void add_offset(float& lse, const C& c, const FwdWork& work, i32 row) const {
    if constexpr (!kShifts) lse += score_offset_at(c.args, work, row);
  }
};

// Integers, exact, which masks and maxima take as they are.
template <FwdConfig kCfg, class Functor>
struct ScoresI8 : ScoresE4m3<kCfg, Functor> {
  static constexpr bool kBiased = true;
  using Codes = ScoresE4m3<kCfg, Functor>;
  using P = typename Codes::P;
  P converted;

  FA3_DEV P& p() { return converted; }
  template <class S>
  FA3_DEV void apply(const FwdArgs&, S&) const {}
  template <class Softmax>
  FA3_DEV static void hold(const Softmax& softmax) {
    softmax.hold();
  }
};

// The same in FP32, exactly.
template <FwdConfig kCfg, class Functor>
struct ScoresI8Converted : ScoresI8<kCfg, Functor> {
  static constexpr bool kBiased = false;
  using Codes = ScoresE4m3<kCfg, Functor>;
  using Codes::apply;

  FA3_DEV typename Codes::P& s() {
    FA3_UNROLL
    for (int i = 0; i < kCfg.tile.kv / 2; ++i)
      this->converted[i] = number_of(this->acc[i]) - kScoreBias;
    return this->converted;
  }
};

// kBiased: integer scores that nothing but masks and the softmax look at.
template <FwdConfig kCfg, class Functor, bool kScaled = kCfg.types.scaled(),
          bool kInteger = is_int8(kCfg.types.qk),
          bool kBiased = kCfg.scores.kind == ScoreKind::kPlain && !Functor::kActive>
struct ScoresOf {
  using Type = Scores16<kCfg, Functor>;
};
template <FwdConfig kCfg, class Functor, bool kBiased>
struct ScoresOf<kCfg, Functor, true, false, kBiased> {
  using Type = ScoresE4m3<kCfg, Functor>;
};
template <FwdConfig kCfg, class Functor>
struct ScoresOf<kCfg, Functor, true, true, true> {
  using Type = ScoresI8<kCfg, Functor>;
};
template <FwdConfig kCfg, class Functor>
struct ScoresOf<kCfg, Functor, true, true, false> {
  using Type = ScoresI8Converted<kCfg, Functor>;
};

}  // namespace fa3::sm90
