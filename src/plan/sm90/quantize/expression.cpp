// SPDX-License-Identifier: BSD-3-Clause
// expression.cpp — a configuration as the text that NVRTC compiles, and by which the
// simulator finds it.
#include <fmt/core.h>

#include "plan/sm90/quantize/plan.h"

namespace fa3::sm90 {
namespace {

std::string turn_text(const TurnConfig& c) {
  const auto type = [](FloatType t) {
    return t == FloatType::kF32 ? "kF32" : t == FloatType::kF16 ? "kF16" : "kBf16";
  };
  const char* const rotary = c.rotary == RotaryKind::kNone     ? "kNone"
                             : c.rotary == RotaryKind::kHalves ? "kHalves"
                                                               : "kPairs";
  return fmt::format(
      "fa3::sm90::TurnConfig{{.x = fa3::sm90::FloatType::{}, .head_dim = {}, .hadamard = {}, "
      ".rotary = fa3::sm90::RotaryKind::{}, .rotary_dim = {}, .table = fa3::sm90::FloatType::{}, "
      ".block_cols = {}, .most_lanes = {}, .from_smem = {}}}",
      type(c.x), c.head_dim, c.hadamard, rotary, c.rotary_dim, type(c.table), c.block_cols,
      c.most_lanes, c.from_smem);
}

}  // namespace

const char* pass_name(QuantizePass pass) {
  switch (pass) {
    case QuantizePass::kMeans:
      return "means";
    case QuantizePass::kMaxima:
      return "maxima";
    case QuantizePass::kCodes:
      return "codes";
    case QuantizePass::kRotated:
      return "rotated";
  }
  return "";
}

bool is_of_codes(QuantizePass pass) { return pass != QuantizePass::kMeans; }

Program program_of(const QuantizePlan& plan) {
  std::string config = turn_text(plan.config.turn);
  if (is_of_codes(plan.pass))
    config = fmt::format("fa3::sm90::QuantizeConfig{{.turn = {}, .to_i8 = {}, .block_rows = {}}}",
                         config, plan.config.to_i8, plan.config.block_rows);
  if (plan.pass == QuantizePass::kRotated)
    config = fmt::format("fa3::sm90::RotatedConfig{{.codes = {}, .row_blocks = {}}}", config,
                         plan.row_blocks);
  return {fmt::format("device/sm90/quantize/{}.cuh", pass_name(plan.pass)),
          fmt::format("fa3::sm90::quantize_{}<{}>", pass_name(plan.pass), config), kHopperArch};
}

}  // namespace fa3::sm90
