// SPDX-License-Identifier: BSD-3-Clause
// expression.cpp — a configuration as the text that NVRTC compiles and the simulator finds.
#include <fmt/core.h>

#include "plan/sm90/append/plan.h"
#include "plan/sm90/float_types.h"
#include "plan/sm90/fwd/names.h"

namespace fa3::sm90 {

std::string append_expression(const AppendConfig& c) {
  return fmt::format(
      "fa3::sm90::append<fa3::sm90::AppendConfig{{.type = fa3::MmaType::{}, .table = "
      "fa3::sm90::FloatType::{}}}>",
      name_of(c.type).enumerator, enumerator_of(c.table));
}

}  // namespace fa3::sm90
