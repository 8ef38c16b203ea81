// SPDX-License-Identifier: BSD-3-Clause
// expression.cpp — a configuration as the text that NVRTC compiles and the simulator finds.
#include <fmt/core.h>

#include <type_traits>

#include "plan/sm90/fwd/names.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/mask/bits_plan.h"

namespace fa3::sm90 {
namespace {

std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(int value) { return std::to_string(value); }
std::string value_text(MmaType value) {
  return fmt::format("fa3::MmaType::{}", name_of(value).enumerator);
}
std::string value_text(MaskKind value) {
  return fmt::format("fa3::MaskKind::{}", name_of(value).enumerator);
}
std::string value_text(ScoreKind value) {
  return fmt::format("fa3::ScoreKind::{}", name_of(value).enumerator);
}
std::string value_text(MaskTensor value) {
  return fmt::format("fa3::MaskTensor::{}", name_of(value).enumerator);
}
std::string value_text(KvSource value) {
  return fmt::format("fa3::KvSource::{}", name_of(value).enumerator);
}
std::string value_text(KvScales value) {
  return fmt::format("fa3::sm90::KvScales::{}", name_of(value).enumerator);
}
std::string value_text(FwdStep value) {
  return fmt::format("fa3::sm90::FwdStep::{}", name_of(value).enumerator);
}
std::string value_text(FwdSchedule value) {
  return fmt::format("fa3::sm90::FwdSchedule::{}", name_of(value).enumerator);
}

// {.field = value, …}
template <class Struct>
requires std::is_class_v<Struct> std::string value_text(const Struct& value) {
  std::string text;
  for_each_field(value, [&](const char* name, const auto& field) {
    text += fmt::format("{}.{} = {}", text.empty() ? "{" : ", ", name, value_text(field));
  });
  return text + "}";
}

}  // namespace

const char* fwd_header(const FwdConfig& config) {
  return config.overlap.ablation() ? "device/sm90/ablation/fwd_ablation.cuh"
                                   : "device/sm90/fwd/fwd.cuh";
}

std::string fwd_expression(const FwdConfig& config, const FwdFunctors& functors) {
  std::string types;
  if (functors.alibi || functors.sequence_ids) {
    types = fmt::format(", fa3::{}, fa3::{}", functors.alibi ? "AlibiScore" : "SameScore",
                        functors.sequence_ids ? "SequenceIdMask" : "EveryKey");
  }
  return fmt::format("fa3::sm90::{}<fa3::sm90::FwdConfig{}{}>",
                     config.overlap.ablation() ? "fwd_ablation" : "fwd", value_text(config), types);
}

std::string v_image_expression(const VImageConfig& config) {
  return fmt::format(
      "fa3::sm90::v_image<fa3::sm90::VImageConfig"
      "{{.tile = {{.keys = {}, .columns = {}}}, .ragged = {}}}>",
      config.tile.keys, config.tile.columns, config.ragged);
}

std::string score_offset_expression(const ScoreOffsetConfig& config) {
  return fmt::format(
      "fa3::sm90::score_offset<fa3::sm90::ScoreOffsetConfig{{.is_i8 = {}, .lanes = {}}}>",
      config.is_i8, config.lanes);
}

std::string mask_bits_expression(const MaskBitsConfig& c) {
  return fmt::format(
      "fa3::sm90::mask_bits<fa3::sm90::MaskBitsConfig{{.type = fa3::MaskTensor::{}, .bf16 = {}, "
      ".tile_q = {}, .tile_kv = {}}}>",
      name_of(c.type).enumerator, c.bf16, c.tile_q, c.tile_kv);
}

}  // namespace fa3::sm90
