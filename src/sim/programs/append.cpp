// SPDX-License-Identifier: BSD-3-Clause
// append.cpp — the kernel that appends to a cache, for the host.
#include "device/sm90/append/append.cuh"

#include "plan/sm90/append/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

template <MmaType kType>
void add() {
  constexpr AppendConfig config{kType};
  const Registration registration(append_expression(config).c_str(), kernel_of(&append<config>));
}

const Registrations added([] {
  add<MmaType::kF16>();
  add<MmaType::kBf16>();
});

}  // namespace
}  // namespace fa3::sim
