// SPDX-License-Identifier: BSD-3-Clause
// varlen_store_faults_test.cpp — TMA cannot end a ragged sequence: rows of the next one belong to
// another CTA.
#include "sim/faults.h"
#include "sim/kernels/varlen_store.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Varlen {
  using Args = VarlenArgs;
  static constexpr u32 kTotal = 64;

  Device device;
  Array<float> o{device, "o", kTotal * 32};
  Array<u32> cu_seqlens{device, "cu_seqlens", 4, true};
  Args args{};

  Varlen() {
    const u32 seqlens[] = {0, 21, 53, kTotal};
    for (u32 i = 0; i < 4; ++i) cu_seqlens[i] = seqlens[i];
    args = {matrix_map(o.data(), TmaType::kF32, 32, kTotal, 32, 16, Swizzle::kNone), o.data(),
            cu_seqlens.data()};
  }
  void clear() { std::memset(o.data(), 0xFF, o.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{3, 1, 1}, 128, sizeof(VarlenSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (u32 i = 0; i < kTotal * 32; ++i) count += !(o[i] == varlen_value(i / 32, i % 32));
    return count;
  }
};

class VarlenFaults : public testing::TestWithParam<Fault<Varlen>> {};
TEST_P(VarlenFaults, IsReported) { expect_fault(GetParam()); }

const Fault<Varlen> kFaults[] = {
    {"TailByTma",
     &varlen_store<VarlenFault::kTailByTma>,
     Shows::kEverySeed,
     {{Rule::kGlobalRace, "o", "after the write by tma_store", "or other places"}}},
    {"BeginOfNext",
     &varlen_store<VarlenFault::kBeginOfNext>,
     Shows::kEverySeed,
     {{Rule::kGlobalRace, "o", "after the write by st_global", "a release and an acquire"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, VarlenFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Varlen>>>);

TEST(SimVarlenStore, Correct_EverySeed) {
  expect_correct<Varlen>(&varlen_store<VarlenFault::kNone>);
}

}  // namespace
}  // namespace fa3::sim
