// SPDX-License-Identifier: BSD-3-Clause
// access_faults_test.cpp — bounds, alignment, initialisation, divergence and misuse of mbarriers in
// a kernel of ordinary accesses.
#include "sim/faults.h"
#include "sim/kernels/access.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Access64 {
  using Args = AccessArgs;

  Device device;
  Array<float> in{device, "in", 64, true}, out{device, "out", 65};
  Args args{in.data(), out.data(), 7};

  Access64() {
    for (u32 i = 0; i < 64; ++i) in[i] = static_cast<float>(i * i % 17);
  }
  void clear() { std::memset(out.data(), 0xFF, out.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 64, sizeof(AccessSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    float sum = 0;
    for (u32 i = 0; i < 64; ++i) {
      count += !(out[i] == in[63 - i]);
      sum += in[i];
    }
    return count + !(out[64] == sum);
  }
};

class AccessFaults : public testing::TestWithParam<Fault<Access64>> {};
TEST_P(AccessFaults, IsReported) { expect_fault(GetParam()); }

template <AccessFault kFault>
constexpr auto kKernel = &reverse<kFault>;
using F = AccessFault;
constexpr Shows kEvery = Shows::kEverySeed;

// Seen before or after the store to it.
const Report kReadTooEarly{Rule::kUninitialized, "values", "which nothing has written", "a store"};
const Report kReadUnordered{Rule::kRace, "values", "after the write by st_shared", "a barrier"};

const Fault<Access64> kFaults[] = {
    {"ReadBeyondInput",
     kKernel<F::kReadBeyondInput>,
     kEvery,
     {{Rule::kOutOfBounds, "in", "ld_global reads 4 bytes outside of every tensor",
       "a predicate"}}},
    {"WriteBeyondOutput",
     kKernel<F::kWriteBeyondOutput>,
     kEvery,
     {{Rule::kOutOfBounds, "out", "st_global writes 4 bytes outside of every", "a predicate"}}},
    {"WriteInput",
     kKernel<F::kWriteInput>,
     kEvery,
     {{Rule::kOutOfBounds, "in", "st_global writes in, which is an input", "an output tensor"}}},
    {"WriteGap",
     kKernel<F::kWriteGap>,
     kEvery,
     {{Rule::kOutOfBounds, "shared memory+2", "which is no member",
       "a member named by FA3_NAMED"}}},
    {"WriteBarrier",
     kKernel<F::kWriteBarrier>,
     kEvery,
     {{Rule::kMbarrier, "sum_full", "st_shared touches the mbarrier sum_full", "mbar_inval()"}}},
    {"MisalignedShared",
     kKernel<F::kMisalignedShared>,
     kEvery,
     {{Rule::kAlignment, "unused+4", "st_shared of 8 bytes at unused+4",
       "a multiple of its size"}}},
    {"MisalignedGlobal",
     kKernel<F::kMisalignedGlobal>,
     kEvery,
     {{Rule::kAlignment, "out+", "st_global of 8 bytes at out+", "a multiple of its size"}}},
    {"UnwrittenRead",
     kKernel<F::kUnwrittenRead>,
     kEvery,
     {{Rule::kUninitialized, "unused", "ld_shared reads unused", "a store"}}},
    {"MissingSync", kKernel<F::kMissingSync>, kEvery, {kReadTooEarly}},
    // Two half warps count as a whole one on the barrier, as on hardware.
    {"DivergentSync", kKernel<F::kDivergentSync>, kEvery, {kReadTooEarly, kReadUnordered}},
    {"InitTwice",
     kKernel<F::kInitTwice>,
     kEvery,
     {{Rule::kMbarrier, "sum_full", "mbar_init of sum_full, which is in use", "mbar_inval()"}}},
    {"InitMisaligned",
     kKernel<F::kInitMisaligned>,
     kEvery,
     {{Rule::kAlignment, "sum_full+4", "mbar_init at offset", "8-byte aligned"}}},
    {"InitZero",
     kKernel<F::kInitZero>,
     kEvery,
     {{Rule::kMbarrier, "sum_full", "mbar_init of sum_full with count 0", "a count from 1"}}},
    {"WaitParity2",
     kKernel<F::kWaitParity2>,
     kEvery,
     {{Rule::kMbarrier, "", "mbar_wait with parity 2", "a parity of 0 or 1"}}},
    // The upper lanes end before or after the lower ones wait for them.
    {"ShuffleOfHalf",
     kKernel<F::kShuffleOfHalf>,
     kEvery,
     {{Rule::kDivergence, "", "ended while lanes of its warp wait for it in shuffle", "all lanes"},
      {Rule::kDivergence, "", "which names lanes that have ended", "all of them alive"}}},
    {"ShuffleAbsentLane",
     kKernel<F::kShuffleAbsentLane>,
     kEvery,
     {{Rule::kDivergence, "", "which is not in mask", "a mask that holds every lane read"}}},
    {"WaitForNobody",
     kKernel<F::kWaitForNobody>,
     kEvery,
     {{Rule::kDeadlock, "sum_empty", "sum_full phase 0: want 2 arrivals, have 1",
       "1 of 2 arrivals on sum_full"}}},
    {"Trap",
     kKernel<F::kTrap>,
     kEvery,
     {{Rule::kTrap, "", "the kernel stopped itself: a value above 10", "what the kernel checks"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, AccessFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Access64>>>);

TEST(SimAccess, Correct_EverySeed) { expect_correct<Access64>(kKernel<F::kNone>); }

// Nothing to compute: the phases alone.
struct TwoReaders : Access64 {
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 96, sizeof(AccessSmem)}, args);
  }
  size_t wrong() { return 0; }
};

TEST(SimTwoReaders, Correct_EverySeed) { expect_correct<TwoReaders>(&two_readers<true>); }
TEST(SimTwoReaders, OneNotCounted_TwoPhasesLate) {
  // A lane that passed a wait two phases late, since the parity was right again, waits in the end
  // for a phase that never begins.
  expect_fault(Fault<TwoReaders>{"OneNotCounted",
                                 &two_readers<false>,
                                 Shows::kWithin64,
                                 {{Rule::kMbarrier, "sum_full", "two phases late",
                                   "must not complete a phase before every waiter"},
                                  {Rule::kDeadlock, "sum_full", "sum_full phase 7",
                                   "1 of 1 arrivals on sum_full in phase 7"}}});
}

}  // namespace
}  // namespace fa3::sim
