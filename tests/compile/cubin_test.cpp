// SPDX-License-Identifier: BSD-3-Clause
// What the checks of programs look for is found where it is: kernels written to have it.
#include "tests/kit/cubin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/kit/nvrtc.h"

namespace fa3 {
namespace {

using testing::HasSubstr;

// Code of a kernel `k` behind the device headers' types.
kit::Translation translate(const char* source) {
  return kit::translate(std::string("#include \"device/hopper/gemm.h\"\nusing namespace fa3;\n") +
                        source);
}

TEST(Cubin, SeesLocalMemory) {
  const kit::Translation bad = translate(R"(
extern "C" __global__ void k(int* io) {
  int table[64];
  for (int i = 0; i < 64; ++i) table[i] = io[i];
  for (int i = 0; i < 64; ++i) io[i] = table[io[i]];
})");
  const kit::Code code(bad.cubin, "k");
  EXPECT_GT(code.count(kit::kLoadLocal), 0u);
  EXPECT_GT(code.count(kit::kStoreLocal), 0u);
  EXPECT_THAT(bad.log, HasSubstr("256 bytes stack frame"));
}

TEST(Cubin, SeesSpills) {
  const kit::Translation bad = translate(R"(
extern "C" __global__ __launch_bounds__(1024, 2) void k(float* io) {
  float x[64];
  for (int i = 0; i < 64; ++i) x[i] = io[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; ++i) io[i * 1024 + threadIdx.x] = x[i] * x[63 - i];
})");
  EXPECT_GT(kit::Code(bad.cubin, "k").count(kit::kStoreLocal), 0u);
  EXPECT_THAT(bad.log, Not(HasSubstr(" 0 bytes spill stores")));
}

// Descriptors that differ between lanes, and accumulators read before the wait.
const char* const kSerial = R"(
extern "C" __global__ __launch_bounds__(128, 1) void k(float* out, const u64* desc, int n) {
  ptx::Acc<64> acc;
  acc.zero();
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    ptx::wgmma_fence();
    ptx::wgmma_ss<MmaType::kBf16, 64>(acc, desc[i + threadIdx.x], desc[i], true);
    ptx::wgmma_ss<MmaType::kBf16, 64>(acc, desc[i + threadIdx.x + 1], desc[i + 1], true);
    ptx::wgmma_commit();
    sum += acc[0];
    ptx::wgmma_wait<0>();
  }
  out[threadIdx.x] = sum;
})";

TEST(Cubin, SeesSerialisedProducts) {
  const kit::Translation bad = translate(kSerial);
  EXPECT_THAT(bad.log, HasSubstr("(C75"));
}

TEST(Cubin, SeesWarnings) {
  EXPECT_THAT(translate("__global__ void k() { int unused; }").log, HasSubstr("warning"));
}

TEST(Cubin, SeesUniformMovesBetweenProducts) {
  const kit::Translation bad = translate(kSerial);
  const kit::Code code(bad.cubin, "k");
  const std::vector<kit::Loop> loops = code.inner_wgmma_loops();
  ASSERT_FALSE(loops.empty());
  int moves = 0, products = 0;
  for (const kit::Instruction& instruction : code.in(loops[0])) {
    products += instruction.is_wgmma();
    if (products == 1) moves += instruction.opcode() == kit::kRegToUniform;
  }
  EXPECT_GT(moves, 0);
}

TEST(Cubin, RefusesWhatItCannotRead) {
  EXPECT_THROW(
      kit::Code("text, not a cubin, but longer than the header of an ELF file is: 64 bytes", "k"),
      std::runtime_error);
  const std::string cubin = translate("extern \"C\" __global__ void k() {}").cubin;
  EXPECT_NO_THROW(kit::Code(cubin, "k"));
  EXPECT_THROW(kit::Code(cubin, "other"), std::runtime_error);
  EXPECT_THROW(kit::Code(cubin.substr(0, cubin.size() / 2), "k"), std::runtime_error);
}

}  // namespace
}  // namespace fa3
