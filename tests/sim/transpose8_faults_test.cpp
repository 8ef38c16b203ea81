// SPDX-License-Identifier: BSD-3-Clause
// transpose8_faults_test.cpp — the FP8 transpose of V: right on every seed; its fences, barriers
// and permutations matter.
#include "sim/faults.h"
#include "sim/kernels/transpose8.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Transpose {
  using Args = TransposeArgs;
  static constexpr int kTiles = 4, kKeys = 64 * kTiles, kDim = 128;

  Device device;
  Array<u8> v{device, "v", kKeys* kDim, true};
  Array<float> p{device, "p", 64 * kKeys, true}, o{device, "o", 64 * kDim};
  std::vector<float> expected = std::vector<float>(64 * kDim);
  Args args{};

  Transpose() {
    const auto v_at = [](int n, int d) {
      return static_cast<float>((n * 3 + d * 5 + n / 11) % 9 - 4);
    };
    const auto p_at = [](int m, int n) { return static_cast<float>((m * 7 + n * 2 + n / 5) % 5); };
    for (int i = 0; i < kKeys * kDim; ++i)
      v[i] = static_cast<u8>(twin::pack_e4m3(v_at(i / kDim, i % kDim), 0, 0, 0));
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < kKeys; ++n) {
        p[m * kKeys + n] = p_at(m, n);
        for (int d = 0; d < kDim; ++d) expected[m * kDim + d] += p_at(m, n) * v_at(n, d);
      }
    args.v = matrix_map(v.data(), TmaType::kU8, kDim, kKeys, kDim, 64, Swizzle::k128);
    args.p = p.data();
    args.o = o.data();
    args.tiles = kTiles;
  }
  void clear() { std::memset(o.data(), 0xFF, o.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 384, sizeof(TransposeSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) count += !(o[i] == expected[i]);
    return count;
  }
};

class TransposeFaults : public testing::TestWithParam<Fault<Transpose>> {};
TEST_P(TransposeFaults, IsReported) { expect_fault(GetParam()); }

template <TransposeFault kFault>
constexpr auto kKernel = &transpose8<kFault>;
using F = TransposeFault;
constexpr Shows kEvery = Shows::kEverySeed;

const Fault<Transpose> kFaults[] = {
    // The fence is one for what was stored and for what was read.
    {"MissingFence",
     kKernel<F::kMissingFence>,
     kEvery,
     {{Rule::kProxyFence, "vt[0]", "after stmatrix wrote it", "by the thread of stmatrix"},
      {Rule::kProxyFence, "v[", "after ldmatrix read it", "by the thread of ldmatrix"}}},
    {"FenceBeforeStore",
     kKernel<F::kFenceBeforeStore>,
     kEvery,
     {{Rule::kProxyFence, "vt[0]", "wgmma reads vt[0]", "by the thread of stmatrix, after it"}}},
    // The copy comes after or before the read of a slower warp.
    {"MissingReadBarrier",
     kKernel<F::kMissingReadBarrier>,
     kEvery,
     {{Rule::kRace, "v[", "after the read by ldmatrix", "an arrive on the empty mbarrier after"},
      {Rule::kRace, "v[", "after the write by tma_load", "a wait for the full mbarrier"}}},
    // The store comes after or before the GEMM's read, or so far ahead that vt_full is too: then no
    // waiter has seen its phase, or a waiter comes two phases late.
    {"MissingTransposedEmptyWait",
     kKernel<F::kMissingTransposedEmptyWait>,
     kEvery,
     {{Rule::kRace, "vt[", "after the read by wgmma", "wgmma_wait() by the warpgroup that reads"},
      {Rule::kRace, "vt[", "after the write by stmatrix", "wgmma_wait() and a barrier before"},
      {Rule::kMbarrier, "vt_full[", "before anybody saw phase", "a wait for each phase"},
      {Rule::kMbarrier, "vt_full[", "two phases late", "before every waiter saw the one before"}}},
    {"MissingRawFullWait",
     kKernel<F::kMissingRawFullWait>,
     kEvery,
     {{Rule::kUninitialized, "v[0]", "ldmatrix reads v[0]", "a completed copy"},
      {Rule::kRace, "v[0]", "after the write by tma_load", "a wait for the full mbarrier"}}},
    {"WithoutSigma", kKernel<F::kWithoutSigma>, Shows::kNumbers, {}},
    {"WithoutTau", kKernel<F::kWithoutTau>, Shows::kNumbers, {}},
    {"RowAt8",
     kKernel<F::kRowAt8>,
     kEvery,
     {{Rule::kAlignment, "v[0]+", "the row of lane 0 is 8 past a multiple of 16",
       "rows at multiples of 16"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, TransposeFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Transpose>>>);

TEST(SimTranspose8, Correct_EverySeed) { expect_correct<Transpose>(kKernel<F::kNone>); }

}  // namespace
}  // namespace fa3::sim
