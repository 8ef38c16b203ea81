// SPDX-License-Identifier: BSD-3-Clause
// expression.cpp — a configuration as the text that NVRTC compiles and the simulator finds.
#include <fmt/core.h>

#include "plan/sm90/float_types.h"
#include "plan/sm90/merge/plan.h"

namespace fa3::sm90 {

std::string merge_expression(const MergeConfig& c) {
  return fmt::format(
      "fa3::sm90::merge<fa3::sm90::MergeConfig{{.parts = fa3::sm90::FloatType::{}, .o = "
      "fa3::sm90::FloatType::{}}}>",
      enumerator_of(c.parts), enumerator_of(c.o));
}

}  // namespace fa3::sm90
