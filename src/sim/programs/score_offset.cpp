// SPDX-License-Identifier: BSD-3-Clause
// score_offset.cpp — the kernel that finds what k_offset adds to scores, for the host: of all head
// dims.
#include "device/sm90/fwd/score_offset.cuh"

#include "plan/sm90/fwd/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

template <bool kIsI8, int kLanes>
void add() {
  constexpr ScoreOffsetConfig config{kIsI8, kLanes};
  const Registration registration(score_offset_expression(config).c_str(),
                                  kernel_of(&score_offset<config>));
  if constexpr (kLanes < 16) add<kIsI8, 2 * kLanes>();
}

const Registrations added([] {
  add<false, 1>();
  add<true, 1>();
});

}  // namespace
}  // namespace fa3::sim
