// SPDX-License-Identifier: BSD-3-Clause
// warp.h — exchanges and votes among the lanes of a warp. All lanes of `mask` must call. None
// orders memory (PTX gives that to bar.warp.sync alone), so there is no memory clobber here;
// volatile keeps the calls where control flow put them. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/ptx/vec.h"
#include "device/types.h"

namespace fa3::ptx {

#if FA3_GPU
#define FA3_SHUFFLE(MODE, CLAMP)                                                             \
  u32 out;                                                                                   \
  asm volatile("shfl.sync." MODE ".b32 %0, %1, %2, %3, %4;"                                  \
               : "=r"(out)                                                                   \
               : "r"(bits_as<u32>(value)), "r"(operand), "r"(((32 - width) << 8) | (CLAMP)), \
                 "r"(mask));                                                                 \
  return bits_as<T>(out)
#else
#define FA3_SHUFFLE(KIND) \
  return bits_as<T>(twin::shuffle(bits_as<u32>(value), operand, KIND, width, mask, where))
#endif

// shfl.sync.idx.b32 (9.7.9.6): the value of lane `operand` of each group of `width` lanes.
template <class T>
FA3_DEV T shfl_idx(T value, u32 operand, u32 width = 32, u32 mask = ~0u,
                   Where where = Where::here()) {
#if FA3_GPU
  FA3_SHUFFLE("idx", 31);
#else
  FA3_SHUFFLE(twin::Shuffle::kIndex);
#endif
}

// shfl.sync.bfly.b32 (9.7.9.6): the value of lane index XOR operand.
template <class T>
FA3_DEV T shfl_xor(T value, u32 operand, u32 width = 32, u32 mask = ~0u,
                   Where where = Where::here()) {
#if FA3_GPU
  FA3_SHUFFLE("bfly", 31);
#else
  FA3_SHUFFLE(twin::Shuffle::kXor);
#endif
}

// shfl.sync.up.b32 (9.7.9.6): the value of lane index − operand; the lowest lanes keep theirs.
template <class T>
FA3_DEV T shfl_up(T value, u32 operand, u32 width = 32, u32 mask = ~0u,
                  Where where = Where::here()) {
#if FA3_GPU
  FA3_SHUFFLE("up", 0);
#else
  FA3_SHUFFLE(twin::Shuffle::kUp);
#endif
}

// shfl.sync.down.b32 (9.7.9.6): the value of lane index + operand; the highest lanes keep theirs.
template <class T>
FA3_DEV T shfl_down(T value, u32 operand, u32 width = 32, u32 mask = ~0u,
                    Where where = Where::here()) {
#if FA3_GPU
  FA3_SHUFFLE("down", 31);
#else
  FA3_SHUFFLE(twin::Shuffle::kDown);
#endif
}
#undef FA3_SHUFFLE

// vote.sync.ballot.b32 (9.7.13.9): bit l is the predicate of lane l.
FA3_DEV u32 ballot(bool predicate, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  u32 out;
  asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, %2;}"
               : "=r"(out)
               : "r"(u32(predicate)), "r"(mask));
  return out;
#else
  return twin::ballot(predicate, mask, where);
#endif
}

// vote.sync.any.pred (9.7.13.9).
FA3_DEV bool any(bool predicate, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  u32 out;
  asm volatile(
      "{.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nvote.sync.any.pred q, p, %2;\n"
      "selp.u32 %0, 1, 0, q;}"
      : "=r"(out)
      : "r"(u32(predicate)), "r"(mask));
  return out != 0;
#else
  return twin::ballot(predicate, mask, where) != 0;
#endif
}

// vote.sync.all.pred (9.7.13.9).
FA3_DEV bool all(bool predicate, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  u32 out;
  asm volatile(
      "{.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nvote.sync.all.pred q, p, %2;\n"
      "selp.u32 %0, 1, 0, q;}"
      : "=r"(out)
      : "r"(u32(predicate)), "r"(mask));
  return out != 0;
#else
  return twin::ballot(!predicate, mask, where) == 0;
#endif
}

// elect.sync (9.7.13.14): true for one lane of the mask, always the same; which one is not said.
FA3_DEV bool elect_one(u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  u32 out;
  asm volatile("{.reg .pred p;\nelect.sync _|p, %1;\nselp.u32 %0, 1, 0, p;}"
               : "=r"(out)
               : "r"(mask));
  return out != 0;
#else
  return twin::elect(mask, where);
#endif
}

#if FA3_GPU
#define FA3_REDUX(OP)                                                                              \
  u32 out;                                                                                         \
  asm volatile("redux.sync." OP " %0, %1, %2;" : "=r"(out) : "r"(bits_as<u32>(value)), "r"(mask)); \
  return bits_as<decltype(value)>(out)
#else
#define FA3_REDUX(OP, IS_SIGNED) \
  return bits_as<decltype(value)>(twin::redux(bits_as<u32>(value), OP, IS_SIGNED, mask, where))
#endif

// redux.sync.add.u32 (9.7.13.12).
FA3_DEV u32 redux_add(u32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("add.u32");
#else
  FA3_REDUX(twin::Redux::kAdd, false);
#endif
}

// redux.sync.min.u32 (9.7.13.12).
FA3_DEV u32 redux_min_u32(u32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("min.u32");
#else
  FA3_REDUX(twin::Redux::kMin, false);
#endif
}

// redux.sync.max.u32 (9.7.13.12).
FA3_DEV u32 redux_max_u32(u32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("max.u32");
#else
  FA3_REDUX(twin::Redux::kMax, false);
#endif
}

// redux.sync.min.s32 (9.7.13.12).
FA3_DEV i32 redux_min_i32(i32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("min.s32");
#else
  FA3_REDUX(twin::Redux::kMin, true);
#endif
}

// redux.sync.max.s32 (9.7.13.12).
FA3_DEV i32 redux_max_i32(i32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("max.s32");
#else
  FA3_REDUX(twin::Redux::kMax, true);
#endif
}

// redux.sync.and.b32 (9.7.13.12).
FA3_DEV u32 redux_and(u32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("and.b32");
#else
  FA3_REDUX(twin::Redux::kAnd, false);
#endif
}

// redux.sync.or.b32 (9.7.13.12).
FA3_DEV u32 redux_or(u32 value, u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  FA3_REDUX("or.b32");
#else
  FA3_REDUX(twin::Redux::kOr, false);
#endif
}
#undef FA3_REDUX

}  // namespace fa3::ptx
