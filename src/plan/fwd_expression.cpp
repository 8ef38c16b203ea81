// SPDX-License-Identifier: BSD-3-Clause
// fwd_expression.cpp — a configuration as the text that NVRTC compiles and the simulator finds.
#include <fmt/core.h>

#include "plan/fwd_sm90.h"

namespace fa3 {
namespace {

const char* name(MmaType type) { return type == MmaType::kF16 ? "kF16" : "kBf16"; }

const char* name(FwdMask mask) {
  switch (mask) {
    case FwdMask::kFull:
      return "kFull";
    case FwdMask::kCausal:
      return "kCausal";
    case FwdMask::kWindow:
      return "kWindow";
  }
  return "";
}

const char* name(FwdScore score) {
  switch (score) {
    case FwdScore::kPlain:
      return "kPlain";
    case FwdScore::kSoftcap:
      return "kSoftcap";
    case FwdScore::kScaled:
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
  return config.specialised ? "device/kernels/fwd_sm90.cuh"
                            : "device/kernels/fwd_sm90_unspecialised.cuh";
}

std::string fwd_expression(const FwdConfig& c) {
  return fmt::format(
      "fa3::{}<fa3::FwdConfig{{.dtype = fa3::MmaType::{}, .mask = fa3::FwdMask::{}, "
      ".score = fa3::FwdScore::{}, .head_dim_qk = {}, .head_dim_v = {}, .tile_kv = {}, "
      ".stages = {}, .consumer_wgs = {}, .q_stages = {}, .step = fa3::FwdStep::{}, "
      ".softmax = {{.lazy_rescale = {}, .integer_max = {}}}, .ping_pong = {}, "
      ".p_in_regs = {}, .o_in_q = {}, .ragged = {}, "
      ".schedule = fa3::FwdSchedule::{}, .cluster = {}, .specialised = {}}}>",
      c.specialised ? "fwd_sm90" : "fwd_sm90_unspecialised", name(c.dtype), name(c.mask),
      name(c.score), c.head_dim_qk, c.head_dim_v, c.tile_kv, c.stages, c.consumer_wgs, c.q_stages,
      name(c.step), c.softmax.lazy_rescale, c.softmax.integer_max, c.ping_pong, c.p_in_regs,
      c.o_in_q, c.ragged, name(c.schedule), c.cluster, c.specialised);
}

}  // namespace fa3
