// SPDX-License-Identifier: BSD-3-Clause
// kernels.h — all GPU kernels, of every architecture.
#pragma once

#include <variant>

#include "plan/plan_kernel.h"
#include "plan/sm90/append/plan.h"
#include "plan/sm90/bwd/plan.h"
#include "plan/sm90/decode/plan.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/fwd/score_offset_plan.h"
#include "plan/sm90/fwd/v_image_plan.h"
#include "plan/sm90/mask/bits_plan.h"
#include "plan/sm90/mask/image_plan.h"
#include "plan/sm90/merge/plan.h"
#include "plan/sm90/quantize/plan.h"

namespace fa3 {

template <PlanKernel... K>
using OneKernelOf = std::variant<K...>;

using Kernel = OneKernelOf<sm90::QuantizePlan, sm90::VImagePlan, sm90::ScoreOffsetPlan,
                           sm90::MaskBitsPlan, sm90::MaskImagePlan, sm90::FwdPlan, sm90::DecodePlan,
                           sm90::CombinePlan, sm90::BwdPlan, sm90::MergePlan, sm90::AppendPlan>;

}  // namespace fa3
