// SPDX-License-Identifier: BSD-3-Clause
// multicast_faults_test.cpp — two CTAs of a cluster that load for each other: right on every seed;
// barriers, counts and the end of a CTA matter.
#include "sim/faults.h"
#include "sim/kernels/multicast.h"

namespace fa3::sim {
namespace {

using namespace faulty;

template <bool kSum>
struct Multicast {
  using Args = MulticastArgs;
  static constexpr int kM = 128, kN = 64, kK = 256;

  Device device;
  Array<u16> a{device, "a", kM*kK, true}, b{device, "b", kN*kK, true};
  Array<float> c{device, "c", kM*kN}, sum{device, "sum", 128};
  std::vector<float> expected = std::vector<float>(kM * kN);
  Args args{};

  Multicast() {
    const auto a_at = [](int m, int k) { return static_cast<float>((m * 7 + k * 3) % 9 - 4); };
    const auto b_at = [](int n, int k) { return static_cast<float>((n * 5 + k / 2) % 7 - 3); };
    for (int i = 0; i < kM * kK; ++i) a[i] = from_double<Bf16>(a_at(i / kK, i % kK)).bits;
    for (int i = 0; i < kN * kK; ++i) b[i] = from_double<Bf16>(b_at(i / kK, i % kK)).bits;
    for (int i = 0; i < kM * kN; ++i)
      for (int k = 0; k < kK; ++k) expected[i] += a_at(i / kN, k) * b_at(i % kN, k);
    args.a = matrix_map(a.data(), TmaType::kBf16, kK, kM, 64, 64, Swizzle::k128);
    args.b = matrix_map(b.data(), TmaType::kBf16, kK, kN, 64, 32, Swizzle::k128);
    args.c = c.data();
    args.sum = sum.data();
    args.tiles_k = kK / 64;
  }
  void clear() {
    std::memset(c.data(), 0xFF, c.size() * sizeof(float));
    std::memset(sum.data(), 0xFF, sum.size() * sizeof(float));
  }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{2, 1, 1}, 256, sizeof(MulticastSmem), 2}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) count += !(c[i] == expected[i]);
    for (u32 thread = 0; kSum && thread < 128; ++thread) {
      const Place place = accumulator_place(thread, 0);
      const size_t at = place.row * kN + place.column;
      count += !(sum[thread] == expected[at] + expected[64 * kN + at]);
    }
    return count;
  }
};

using Sums = Multicast<true>;
using Tails = Multicast<false>;
class MulticastFaults : public testing::TestWithParam<Fault<Sums>> {};
TEST_P(MulticastFaults, IsReported) { expect_fault(GetParam()); }

template <MulticastFault kFault>
constexpr auto kKernel = &multicast_gemm<kFault, true>;
template <MulticastFault kFault>
constexpr auto kTailKernel = &multicast_gemm<kFault, false>;
using F = MulticastFault;
constexpr Shows kEvery = Shows::kEverySeed;

const Report kReadEarly{Rule::kRace, "b[", "after the write by tma_load_multicast",
                        "a wait for the full mbarrier"};
const Report kOverwritten{Rule::kRace, "b[", "after the read by wgmma", "that counts every reader"};
const Report kOverwrittenInFlight{Rule::kRace, "[0]", "after the write by tma_load",
                                  "a wait for the empty mbarrier"};
const Report kExpectedEarly{Rule::kMbarrier, "full[", "brings 1 arrivals, but phase",
                            "after the wait for the phase before"};
const Report kNothingThere{Rule::kUninitialized, "", "which nothing has written",
                           "a completed copy"};
const Report kUnseenPhase{Rule::kMbarrier, "[", "before anybody saw phase",
                          "a wait for each phase"};
const Report kTooManyBytes{Rule::kMbarrier, "full[", "more than phase", "the bytes of all copies"};

const Fault<Sums> kFaults[] = {
    {"CtaSyncOnly",
     kKernel<F::kCtaSyncOnly>,
     kEvery,
     {{Rule::kCluster, "", "tma_load_multicast touches shared memory of CTA",
       "cluster_arrive() and cluster_wait() by all threads"}}},
    // Without the wait, threads use barriers that others initialise, or arrive a second time.
    {"MissingClusterWait",
     kKernel<F::kMissingClusterWait>,
     kEvery,
     {{Rule::kMbarrier, "[0]", "before its initialisation is visible", "cluster_wait()"},
      {Rule::kMbarrier, "[0]", "no initialised mbarrier", "mbar_init() before"},
      {Rule::kCluster, "cluster barrier", "arrives twice", "a cluster_wait() between"}}},
    {"EarlyRemoteStore",
     kKernel<F::kEarlyRemoteStore>,
     kEvery,
     {{Rule::kCluster, "", "before the first cluster barrier", "only then every CTA has started"}}},
    // A consumer may see the phase complete before the remaining bytes overflow its count, and
    // these complete the next phase without A, which then lands during the GEMM.
    {"ExpectOwnHalf",
     kKernel<F::kExpectOwnHalf>,
     kEvery,
     {kTooManyBytes,
      kReadEarly,
      {Rule::kUninitialized, "[", "which nothing has written", "a completed copy"},
      {Rule::kRace, "a[", "after the read by wgmma", "that counts every reader"}}},
    {"ReleaseOwnOnly",
     kKernel<F::kReleaseOwnOnly>,
     kEvery,
     {{Rule::kDeadlock, "empty[0]", "empty[0] phase 0: want 2 arrivals, have 1",
       "1 of 2 arrivals on empty[0]"}}},
    // The other CTA's reads are not waited for: its half lands too early, or overflows the count.
    {"ReleaseTwice",
     kKernel<F::kReleaseTwice>,
     kEvery,
     {kOverwritten, kReadEarly, kTooManyBytes, kOverwrittenInFlight, kNothingThere}},
    // The first release counts for both: the slower CTA's stage is filled while it is in use.
    {"EmptyCountOwn",
     kKernel<F::kEmptyCountOwn>,
     kEvery,
     {kOverwrittenInFlight, kOverwritten, kReadEarly, kExpectedEarly, kUnseenPhase, kNothingThere}},
    {"MissingEmptyWait",
     kKernel<F::kMissingEmptyWait>,
     kEvery,
     {kExpectedEarly, kOverwrittenInFlight}},
    {"MaskOfThree",
     kKernel<F::kMaskOfThree>,
     kEvery,
     {{Rule::kCluster, "", "to CTAs 0x7 of a cluster of 2", "a mask of CTAs that exist"}}},
    {"MissingSumBarrier",
     kKernel<F::kMissingSumBarrier>,
     kEvery,
     {{Rule::kRace, "sums", "after the write by st_shared_cluster", "a barrier between"},
      {Rule::kUninitialized, "sums", "ld_shared reads sums", "a store"}}},
    {"RelaxedSumBarrier",
     kKernel<F::kRelaxedSumBarrier>,
     kEvery,
     {{Rule::kRace, "sums", "after the write by st_shared_cluster", "a barrier between"}}},
    {"RankTwo",
     kKernel<F::kRankTwo>,
     kEvery,
     {{Rule::kCluster, "", "rank 2 of a cluster of 2", "a rank below cluster_size()"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, MulticastFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Sums>>>);

TEST(SimMulticast, ReleaseAfterPeerEnded_IsReported) {
  expect_fault(Fault<Tails>{
      "MissingTail",
      kTailKernel<F::kMissingTail>,
      Shows::kWithin64,
      {{Rule::kCluster, "", "which has ended", "a cluster barrier (or a last wait) before"}}});
}

TEST(SimMulticast, Correct_EverySeed) { expect_correct<Sums>(kKernel<F::kNone>); }
TEST(SimMulticast, TailForBarrier_EverySeed) { expect_correct<Tails>(kTailKernel<F::kNone>); }

}  // namespace
}  // namespace fa3::sim
