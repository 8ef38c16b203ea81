// SPDX-License-Identifier: BSD-3-Clause
// handoff_faults_test.cpp — data between CTAs and between grids: right on every seed; releases,
// acquires, fences and the wait for the grid before matter.
#include "sim/faults.h"
#include "sim/kernels/handoff.h"

namespace fa3::sim {
namespace {

using namespace faulty;

// The primary grid, then the one that depends on it.
struct Handoff {
  using Args = HandoffArgs;

  Device device;
  Array<float> tile{device, "tile", 1024}, copy{device, "copy", 1024}, twice{device, "twice", 1024};
  Array<u32> flag{device, "flag", 4};
  Args args{};

  Handoff() {
    args = {tile.data(), flag.data(), copy.data(), twice.data(),
            matrix_map(tile.data(), TmaType::kF32, 32, 32, 32, 32, Swizzle::kNone)};
  }
  void clear() {
    for (auto* array : {&tile, &copy, &twice}) std::memset(array->data(), 0xFF, 4096);
    flag[0] = 0;
  }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    LaunchShape shape{{2, 1, 1}, 64, sizeof(HandoffSmem)};
    shape.interacting = true;
    if (auto violation = violation_of(device, kernel, shape, args)) return violation;
    return dependent(&double_copy<HandoffFault::kNone>);
  }
  std::optional<Violation> dependent(void (*kernel)(const Args)) {
    LaunchShape shape{{1, 1, 1}, 64, 0};
    shape.pdl = true;
    return violation_of(device, kernel, shape, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (u32 i = 0; i < 1024; ++i) count += !(twice[i] == 2 * static_cast<float>(i));
    return count;
  }
};

// The fault is in the second grid.
struct Dependent : Handoff {
  std::optional<Violation> run(void (*kernel)(const Args)) {
    LaunchShape shape{{2, 1, 1}, 64, sizeof(HandoffSmem)};
    shape.interacting = true;
    const auto first =
        violation_of(device, &hand_off<HandoffFault::kNone, false, false>, shape, args);
    return first ? first : dependent(kernel);
  }
};

class HandoffFaults : public testing::TestWithParam<Fault<Handoff>> {};
TEST_P(HandoffFaults, IsReported) { expect_fault(GetParam()); }
class DependentFaults : public testing::TestWithParam<Fault<Dependent>> {};
TEST_P(DependentFaults, IsReported) { expect_fault(GetParam()); }

template <HandoffFault kFault, bool kFences, bool kTma>
constexpr auto kKernel = &hand_off<kFault, kFences, kTma>;
using F = HandoffFault;
constexpr Shows kEvery = Shows::kEverySeed;

const Report kUnordered{Rule::kGlobalRace, "tile", "after the write by st_global",
                        "a release and an acquire between the two"};
const Report kUnorderedWrite{Rule::kGlobalRace, "tile", "after the read by",
                             "a release and an acquire"};

const Fault<Handoff> kFaults[] = {
    {"RelaxedStore", kKernel<F::kRelaxedStore, false, false>, kEvery, {kUnordered}},
    {"RelaxedLoad", kKernel<F::kRelaxedLoad, false, false>, kEvery, {kUnordered}},
    {"MissingReleaseFence", kKernel<F::kRelaxedStore, true, false>, kEvery, {kUnordered}},
    {"MissingAcquireFence", kKernel<F::kRelaxedLoad, true, false>, kEvery, {kUnordered}},
    {"MissingFlagWait",
     kKernel<F::kMissingFlagWait, false, false>,
     kEvery,
     {kUnordered, kUnorderedWrite}},
    {"MissingFlagWaitOfTma",
     kKernel<F::kMissingFlagWait, false, true>,
     kEvery,
     {kUnordered, kUnorderedWrite}},
    {"MissingSync", kKernel<F::kMissingSync, false, false>, kEvery, {kUnordered, kUnorderedWrite}},
    {"MissingProxyFence",
     kKernel<F::kMissingProxyFence, false, true>,
     kEvery,
     {{Rule::kProxyFence, "tile", "tma_load reads tile+", "fence_proxy_async_global()"}}},
    {"Overlap",
     kKernel<F::kOverlap, false, false>,
     kEvery,
     {{Rule::kGlobalRace, "copy", "after the write by st_global", "a release and an acquire"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, HandoffFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Handoff>>>);

const Report kEarlierGrid{Rule::kLaunch, "copy", "which an earlier grid writes",
                          "pdl_wait() before the first access"};
const Fault<Dependent> kDependentFaults[] = {
    {"MissingPdlWait", &double_copy<F::kMissingPdlWait>, kEvery, {kEarlierGrid}},
    {"MissingPdlSync", &double_copy<F::kMissingPdlSync>, kEvery, {kEarlierGrid}},
};
INSTANTIATE_TEST_SUITE_P(Sim, DependentFaults, testing::ValuesIn(kDependentFaults),
                         fault_name<testing::TestParamInfo<Fault<Dependent>>>);

// A launch that was right leaves nothing behind that would hide what the next one does wrong.
struct Again : Handoff {
  std::optional<Violation> run(void (*kernel)(const Args)) {
    if (auto violation = Handoff::run(kKernel<F::kNone, false, false>)) return violation;
    clear();
    return Handoff::run(kernel);
  }
};
TEST(SimHandoff, SecondLaunch_RelaxedStoreIsReported) {
  expect_fault(
      Fault<Again>{"RelaxedStore", kKernel<F::kRelaxedStore, false, false>, kEvery, {kUnordered}});
}

TEST(SimHandoff, Release_EverySeed) { expect_correct<Handoff>(kKernel<F::kNone, false, false>); }
TEST(SimHandoff, Fences_EverySeed) { expect_correct<Handoff>(kKernel<F::kNone, true, false>); }
TEST(SimHandoff, Tma_EverySeed) { expect_correct<Handoff>(kKernel<F::kNone, false, true>); }

}  // namespace
}  // namespace fa3::sim
