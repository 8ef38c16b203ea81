// SPDX-License-Identifier: BSD-3-Clause
// merge.cpp — the kernel that merges a caller's parts, for the host: of all types.
#include "device/sm90/merge/merge.cuh"

#include "plan/sm90/merge/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

template <FloatType kParts, FloatType kO>
void add() {
  constexpr MergeConfig config{kParts, kO};
  const Registration registration(merge_expression(config).c_str(), kernel_of(&merge<config>));
}

template <FloatType kParts>
void add_types() {
  add<kParts, FloatType::kF32>();
  add<kParts, FloatType::kF16>();
  add<kParts, FloatType::kBf16>();
}

const Registrations added([] {
  add_types<FloatType::kF32>();
  add_types<FloatType::kF16>();
  add_types<FloatType::kBf16>();
});

}  // namespace
}  // namespace fa3::sim
