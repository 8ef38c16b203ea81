// SPDX-License-Identifier: BSD-3-Clause
// fwd_expression.cpp — a configuration as the text that NVRTC compiles and the simulator finds.
#include <fmt/core.h>

#include "plan/sm90/fwd_plan.h"

namespace fa3::sm90 {
namespace {

const char* name(MmaType type) { return type == MmaType::kF16 ? "kF16" : "kBf16"; }

const char* name(MaskKind mask) {
  switch (mask) {
    case MaskKind::kFull:
      return "kFull";
    case MaskKind::kCausal:
      return "kCausal";
    case MaskKind::kWindow:
      return "kWindow";
  }
  return "";
}

const char* name(ScoreKind score) {
  switch (score) {
    case ScoreKind::kPlain:
      return "kPlain";
    case ScoreKind::kSoftcap:
      return "kSoftcap";
    case ScoreKind::kScaled:
      return "kScaled";
  }
  return "";
}

const char* name(FwdStep step) {
  switch (step) {
    case FwdStep::kSerial:
      return "kSerial";
    case FwdStep::kTwoStage:
      return "kTwoStage";
    case FwdStep::kThreeStage:
      return "kThreeStage";
  }
  return "";
}

const char* name(FwdSchedule schedule) {
  switch (schedule) {
    case FwdSchedule::kOneTile:
      return "kOneTile";
    case FwdSchedule::kStatic:
      return "kStatic";
    case FwdSchedule::kDynamic:
      return "kDynamic";
  }
  return "";
}

}  // namespace

const char* fwd_header(const FwdConfig& config) {
  return config.specialised ? "device/sm90/fwd/fwd.cuh"
                            : "device/sm90/ablation/fwd_unspecialised.cuh";
}

std::string fwd_expression(const FwdConfig& c) {
  return fmt::format(
      "fa3::sm90::{}<fa3::sm90::FwdConfig{{.dtype = fa3::MmaType::{}, .mask = fa3::MaskKind::{}, "
      ".score = fa3::ScoreKind::{}, .head_dim_qk = {}, .head_dim_v = {}, .tile_kv = {}, "
      ".stages = {}, .consumer_wgs = {}, .q_stages = {}, .step = fa3::sm90::FwdStep::{}, "
      ".softmax = {{.lazy_rescale = {}, .integer_max = {}}}, .ping_pong = {}, "
      ".p_in_regs = {}, .o_in_q = {}, .ragged = {}, "
      ".schedule = fa3::sm90::FwdSchedule::{}, .cluster = {}, .specialised = {}}}>",
      c.specialised ? "fwd" : "fwd_unspecialised", name(c.dtype), name(c.mask), name(c.score),
      c.head_dim_qk, c.head_dim_v, c.tile_kv, c.stages, c.consumer_wgs, c.q_stages, name(c.step),
      c.softmax.lazy_rescale, c.softmax.integer_max, c.ping_pong, c.p_in_regs, c.o_in_q, c.ragged,
      name(c.schedule), c.cluster, c.specialised);
}

}  // namespace fa3::sm90
