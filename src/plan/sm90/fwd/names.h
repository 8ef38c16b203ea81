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
                                                {MaskKind::kWindow, "kWindow", "window"}};
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

// f(name, field) for each field in the order of declaration, of a FwdConfig or a SoftmaxVariant;
// either may be const.
template <class Config, class F>
constexpr void for_each_field(Config& c, const F& f) {
  if constexpr (std::is_same_v<std::remove_const_t<Config>, SoftmaxVariant>) {
    f("lazy_rescale", c.lazy_rescale);
    f("test_first", c.test_first);
    f("p_log2", c.p_log2);
    f("per_row", c.per_row);
  } else {
    f("dtype_qk", c.dtype_qk);
    f("dtype_v", c.dtype_v);
    f("dtype_o", c.dtype_o);
    f("mask", c.mask);
    f("score", c.score);
    f("attn_mask", c.attn_mask);
    f("head_dim_qk", c.head_dim_qk);
    f("head_dim_v", c.head_dim_v);
    f("tile_kv", c.tile_kv);
    f("stages", c.stages);
    f("raw_v_stages", c.raw_v_stages);
    f("v_image", c.v_image);
    f("flush_columns", c.flush_columns);
    f("park_tiles", c.park_tiles);
    f("part_tiles", c.part_tiles);
    f("kv_scales", c.kv_scales);
    f("scale_columns", c.scale_columns);
    f("consumer_wgs", c.consumer_wgs);
    f("q_stages", c.q_stages);
    f("mask_stages", c.mask_stages);
    f("step", c.step);
    f("softmax", c.softmax);
    f("ping_pong", c.ping_pong);
    f("o_f32", c.o_f32);
    f("o_in_q", c.o_in_q);
    f("o_parts", c.o_parts);
    f("ragged", c.ragged);
    f("kv", c.kv);
    f("schedule", c.schedule);
    f("specialised", c.specialised);
  }
}

}  // namespace fa3::sm90
