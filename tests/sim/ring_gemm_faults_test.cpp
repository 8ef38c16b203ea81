// SPDX-License-Identifier: BSD-3-Clause
// ring_gemm_faults_test.cpp — TMA → wgmma through a ring of stages: right on every seed; each line
// that orders it, left out, is reported.
#include "sim/faults.h"
#include "sim/kernels/ring_gemm.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct RingGemm {
  using Args = RingArgs;
  static constexpr int kM = 128, kN = 64, kK = 320;

  Device device;
  Array<u16> a{device, "a", kM*kK, true}, b{device, "b", kN*kK, true};
  Array<float> c{device, "c", kM* kN};
  std::vector<float> expected = std::vector<float>(kM * kN);
  Args args{};

  RingGemm() {
    const auto a_at = [](int m, int k) { return static_cast<float>((m * 7 + k * 3) % 9 - 4); };
    const auto b_at = [](int n, int k) { return static_cast<float>((n * 5 + k / 2) % 7 - 3); };
    for (int m = 0; m < kM; ++m)
      for (int k = 0; k < kK; ++k) a[m * kK + k] = from_double<Bf16>(a_at(m, k)).bits;
    for (int n = 0; n < kN; ++n)
      for (int k = 0; k < kK; ++k) b[n * kK + k] = from_double<Bf16>(b_at(n, k)).bits;
    for (int m = 0; m < kM; ++m)
      for (int n = 0; n < kN; ++n)
        for (int k = 0; k < kK; ++k) expected[m * kN + n] += a_at(m, k) * b_at(n, k);
    args.a = matrix_map(a.data(), TmaType::kBf16, kK, kM, 64, kM, Swizzle::k128);
    args.b = matrix_map(b.data(), TmaType::kBf16, kK, kN, 64, kN, Swizzle::k128);
    args.c = c.data();
    args.tiles_k = kK / 64;
  }
  void clear() { std::memset(c.data(), 0xFF, c.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 384, sizeof(RingSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) count += !(c[i] == expected[i]);
    return count;
  }
};

class RingGemmFault : public testing::TestWithParam<Fault<RingGemm>> {};
TEST_P(RingGemmFault, IsReported) { expect_fault(GetParam()); }

template <RingFault kFault>
constexpr auto kKernel = &ring_gemm<kFault>;
using F = RingFault;

constexpr Shows kEvery = Shows::kEverySeed;

// What a stage that is used too early shows: the copy and the GEMM, unordered, seen
// from either side, or memory that the copy has not reached yet.
const Report kReadEarly{Rule::kRace, "[", "after the write by tma_load",
                        "a wait for the full mbarrier"};
const Report kReadBeforeCopy{Rule::kUninitialized, "[", "which nothing has written",
                             "a completed copy"};
const Report kOverwritten{Rule::kRace, "[", "after the read by wgmma",
                          "wgmma_wait() by the warpgroup"};
// `empty` completes before both warpgroups have arrived: the rest of the arrivals is early, and
// the slower warpgroup finds `full` two phases on.
const Report kEarlyArrival{Rule::kMbarrier, "empty[", "before anybody saw phase",
                           "a wait for each phase"};
const Report kTwoPhasesLate{Rule::kMbarrier, "full[", "two phases late",
                            "must not complete a phase before every waiter"};

const Fault<RingGemm> kFaults[] = {
    {"MissingFullWait", kKernel<F::kMissingFullWait>, kEvery, {kReadEarly, kReadBeforeCopy}},
    // The next tile's arrival comes while the tile before is in flight, or after it was complete
    // but not yet seen, or its bytes land on those of the tile before.
    {"MissingEmptyWait",
     kKernel<F::kMissingEmptyWait>,
     kEvery,
     {{Rule::kMbarrier, "full[", "brings 1 arrivals, but phase", "after the wait for the phase"},
      {Rule::kMbarrier, "full[", "before anybody saw phase", "a wait for each phase"},
      {Rule::kRace, "[", "after the write by tma_load", "a wait for the empty mbarrier"}}},
    {"ReleaseBeforeWait", kKernel<F::kReleaseBeforeWait>, kEvery, {kOverwritten, kReadEarly}},
    {"ReadBeforeWait",
     kKernel<F::kReadBeforeWait>,
     kEvery,
     {{Rule::kRegisterInFlight, "", "before the wait that covers it", "wgmma_wait<N>()"}}},
    {"MissingCommit",
     kKernel<F::kMissingCommit>,
     kEvery,
     {{Rule::kWgmma, "", "has not been committed", "wgmma_commit() before the wait"}}},
    {"MissingInitFence",
     kKernel<F::kMissingInitFence>,
     kEvery,
     {{Rule::kMbarrier, "full[0]", "initialisation was not fenced", "fence_mbar_init()"}}},
    {"MissingCtaSync",
     kKernel<F::kMissingCtaSync>,
     kEvery,
     {{Rule::kMbarrier, "[0]", "before its initialisation is visible to warp", "cta_sync()"},
      {Rule::kMbarrier, "[0]", "which is no initialised mbarrier", "mbar_init() before"}}},
    {"ExpectTwice",
     kKernel<F::kExpectTwice>,
     kEvery,
     {{Rule::kDeadlock, "", "full[0] phase 0: want 1 arrivals, have 1; 24576 tx bytes outstanding",
       "24576 bytes that full[0] expects"}}},
    // A consumer may see the phase complete before the remaining bytes overflow its count.
    {"ExpectHalf",
     kKernel<F::kExpectHalf>,
     kEvery,
     {{Rule::kMbarrier, "full[", "more than phase", "the bytes of all copies of the phase"},
      kReadEarly,
      kReadBeforeCopy}},
    {"ProducerParity",
     kKernel<F::kProducerParity>,
     kEvery,
     {{Rule::kDeadlock, "empty[0]", "empty[0] phase 0: want 2 arrivals, have 0",
       "a producer starts with 1"}}},
    // The stale phase is waited for, so the stage is used before its copy, or released at once.
    {"PhaseNotFlipped",
     kKernel<F::kPhaseNotFlipped>,
     kEvery,
     {{Rule::kDeadlock, "empty[0]", "full[0] phase 2: want 1 arrivals, have 0", "arrivals on"},
      kReadEarly,
      kOverwritten,
      kEarlyArrival}},
    {"EmptyCount1",
     kKernel<F::kEmptyCount1>,
     kEvery,
     {kOverwritten, kReadEarly, kEarlyArrival, kTwoPhasesLate}},
    {"EmptyCount128",
     kKernel<F::kEmptyCount128>,
     kEvery,
     {{Rule::kDeadlock, "empty[0]", "empty[0] phase 0: want 128 arrivals, have 2",
       "126 of 128 arrivals on empty[0]"}}},
    {"DoubleArrive",
     kKernel<F::kDoubleArrive>,
     kEvery,
     {kOverwritten, kReadEarly, kEarlyArrival, kTwoPhasesLate}},
    {"ReleaseByEveryLane", kKernel<F::kReleaseByEveryLane>, kEvery, {kEarlyArrival, kOverwritten}},
    {"SameGroupReleasesTwice",
     kKernel<F::kSameGroupReleasesTwice>,
     kEvery,
     {kOverwritten, kReadEarly, kTwoPhasesLate}},
    {"AccumulateAtFirst",
     kKernel<F::kAccumulateAtFirst>,
     kEvery,
     {{Rule::kUninitialized, "", "accumulates into registers that hold nothing",
       "accumulate = false"}}},
    {"SwappedOffsets", kKernel<F::kSwappedOffsets>, Shows::kNumbers, {}},
    {"Swizzle64",
     kKernel<F::kSwizzle64>,
     kEvery,
     {{Rule::kDescriptor, "a[0]", "with a 64-byte swizzle; the copy wrote it with a 128-byte",
       "the same swizzle"}}},
    {"StageAt512",
     kKernel<F::kStageAt512>,
     kEvery,
     {{Rule::kAlignment, "a[0]+512", "512 past a multiple of 1024", "aligned to 1024 bytes"}}},
    {"Registers",
     kKernel<F::kRegisters>,
     kEvery,
     {{Rule::kDeadlock, "", "warpgroup 0: 40 registers per thread", "may add up to 504"}}},
    {"NoRegistersGivenBack",
     kKernel<F::kNoRegistersGivenBack>,
     kEvery,
     {{Rule::kDeadlock, "", "warpgroup 0: 168 registers per thread",
       "execute its reg_decrease()"}}},
    {"TurnOfOneId",
     kKernel<F::kTurnOfOneId>,
     kEvery,
     {{Rule::kNamedBarrier, "named barrier", "arrives twice at named barrier",
       "a second barrier id"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, RingGemmFault, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<RingGemm>>>);

TEST(SimRingGemm, Correct_EverySeed) { expect_correct<RingGemm>(kKernel<F::kNone>); }

}  // namespace
}  // namespace fa3::sim
