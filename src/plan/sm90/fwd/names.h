// SPDX-License-Identifier: BSD-3-Clause
// names.h — the names in a forward kernel's configuration, each written once: the
// enumerators as C++ and as words of kernel names, and the fields of FwdConfig in order.
#pragma once

#include <type_traits>

#include "device/sm90/fwd/config.h"
#include "plan/sm90/fwd/configs.h"

namespace fa3::sm90 {

template <class E>
struct Name {
  E value;
  const char* enumerator;
  const char* word;
};

inline constexpr Name<MmaType> kTypeNames[] = {
    {MmaType::kF16, "kF16", "f16"},    {MmaType::kBf16, "kBf16", "bf16"},
    {MmaType::kTf32, "kTf32", "tf32"}, {MmaType::kE4m3, "kE4m3", "e4m3"},
    {MmaType::kE5m2, "kE5m2", "e5m2"}, {MmaType::kS8, "kS8", "s8"},
    {MmaType::kU8, "kU8", "u8"}};
inline constexpr Name<MaskKind> kMaskNames[] = {{MaskKind::kFull, "kFull", "full"},
                                                {MaskKind::kCausal, "kCausal", "causal"},
                                                {MaskKind::kWindow, "kWindow", "window"},
                                                {MaskKind::kChunk, "kChunk", "chunk"}};
inline constexpr Name<ScoreKind> kScoreNames[] = {{ScoreKind::kPlain, "kPlain", "plain"},
                                                  {ScoreKind::kSoftcap, "kSoftcap", "softcap"},
                                                  {ScoreKind::kScaled, "kScaled", "scaled"}};
inline constexpr Name<Operands> kOperandsNames[] = {{Operands::k16, "k16", "16_bits"},
                                                    {Operands::kE4m3, "kE4m3", "e4m3"},
                                                    {Operands::kI8E4m3, "kI8E4m3", "i8_e4m3"},
                                                    {Operands::kI8V16, "kI8V16", "i8_16_bits"}};
inline constexpr Name<KvScales> kKvScalesNames[] = {{KvScales::kHead, "kHead", "head_scales"},
                                                    {KvScales::kTiles, "kTiles", "tile_scales"},
                                                    {KvScales::kKeys, "kKeys", "key_scales"}};
inline constexpr Name<Sums> kSumsNames[] = {{Sums::kShort, "kShort", "short"},
                                            {Sums::kLong, "kLong", "long"},
                                            {Sums::kBlocks, "kBlocks", "flushed"}};
inline constexpr Name<FwdStep> kStepNames[] = {
    {FwdStep::kSerial, "kSerial", "serial"},
    {FwdStep::kTwoStage, "kTwoStage", "two_stage"},
    {FwdStep::kThreeStage, "kThreeStage", "three_stage"}};
inline constexpr Name<FwdSchedule> kScheduleNames[] = {
    {FwdSchedule::kOneTile, "kOneTile", "one_tile"},
    {FwdSchedule::kPersistent, "kPersistent", "persistent"}};

inline constexpr Name<KvSource> kKvSourceNames[] = {{KvSource::kTensor, "kTensor", "tensor"},
                                                    {KvSource::kTiles, "kTiles", "cached_tiles"},
                                                    {KvSource::kRuns, "kRuns", "cached_runs"},
                                                    {KvSource::kRows, "kRows", "cached_rows"}};
inline constexpr Name<MaskTensor> kMaskTensorNames[] = {{MaskTensor::kNone, "kNone", "no_mask"},
                                                        {MaskTensor::kBool, "kBool", "bool_mask"},
                                                        {MaskTensor::kF32, "kF32", "f32_mask"},
                                                        {MaskTensor::k16, "k16", "16_bit_mask"}};

constexpr const auto& names_of(MmaType) { return kTypeNames; }
constexpr const auto& names_of(MaskKind) { return kMaskNames; }
constexpr const auto& names_of(KvSource) { return kKvSourceNames; }
constexpr const auto& names_of(MaskTensor) { return kMaskTensorNames; }
constexpr const auto& names_of(ScoreKind) { return kScoreNames; }
constexpr const auto& names_of(Operands) { return kOperandsNames; }
constexpr const auto& names_of(KvScales) { return kKvScalesNames; }
constexpr const auto& names_of(Sums) { return kSumsNames; }
constexpr const auto& names_of(FwdStep) { return kStepNames; }
constexpr const auto& names_of(FwdSchedule) { return kScheduleNames; }

// {value, "", ""} for a value that is not an enumerator.
template <class E>
constexpr Name<E> name_of(E value) {
  for (const Name<E>& name : names_of(value)) {
    if (name.value == value) return name;
  }
  return {value, "", ""};
}
template <class E>
constexpr const char* word(E value) {
  return name_of(value).word;
}

// for_each_field(c, f): f(name, field) for each field of a FwdConfig, or of a struct in one, in the
// order of declaration.
template <class C, class Struct>
concept Is = std::is_same_v<std::remove_const_t<C>, Struct>;

template <Is<FwdTypes> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("qk", c.qk), f("v", c.v), f("o", c.o);
}
template <Is<FwdTile> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("head_dim_qk", c.head_dim_qk), f("head_dim_v", c.head_dim_v), f("kv", c.kv);
  f("stages", c.stages), f("consumer_wgs", c.consumer_wgs), f("q_stages", c.q_stages);
}
template <Is<FwdLoad> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("ragged", c.ragged), f("kv", c.kv), f("v_image", c.v_image);
  f("raw_v_stages", c.raw_v_stages);
}
template <Is<SoftmaxVariant> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("lazy_rescale", c.lazy_rescale), f("test_first", c.test_first), f("p_log2", c.p_log2);
  f("per_row", c.per_row), f("keeps_greatest", c.keeps_greatest);
}
template <Is<FwdScores> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("kind", c.kind), f("kv_scales", c.kv_scales), f("scale_columns", c.scale_columns);
  f("softmax", c.softmax);
}
template <Is<FwdMask> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("kind", c.kind), f("tensor", c.tensor), f("stages", c.stages);
}
template <Is<FwdAccumulate> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("flush_columns", c.flush_columns), f("park_tiles", c.park_tiles);
  f("part_tiles", c.part_tiles);
}
template <Is<FwdOutput> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("f32", c.f32), f("in_q", c.in_q), f("parts", c.parts);
  f("max_logit", c.max_logit);
}
template <Is<FwdOverlap> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("step", c.step), f("ping_pong", c.ping_pong), f("schedule", c.schedule);
  f("specialised", c.specialised);
}
template <Is<FwdConfig> C, class F>
constexpr void for_each_field(C& c, const F& f) {
  f("types", c.types), f("tile", c.tile), f("load", c.load), f("scores", c.scores);
  f("mask", c.mask), f("accumulate", c.accumulate), f("output", c.output);
  f("overlap", c.overlap);
}

}  // namespace fa3::sm90
