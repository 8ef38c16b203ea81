// SPDX-License-Identifier: BSD-3-Clause
// append.cpp — the kernel that appends to a cache, for the host: of all types.
#include "device/sm90/append/append.cuh"

#include "plan/sm90/append/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

template <MmaType kType, FloatType kTable>
void add() {
  constexpr AppendConfig config{kType, kTable};
  const Registration registration(append_expression(config).c_str(), kernel_of(&append<config>));
}

template <MmaType kType>
void add_tables() {
  add<kType, FloatType::kF32>();
  add<kType, FloatType::kF16>();
  add<kType, FloatType::kBf16>();
}

const Registrations added([] {
  add_tables<MmaType::kF16>();
  add_tables<MmaType::kBf16>();
});

}  // namespace
}  // namespace fa3::sim
