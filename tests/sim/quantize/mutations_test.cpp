// SPDX-License-Identifier: BSD-3-Clause
// mutations_test.cpp — every wait, arrival, fence and barrier of the quantising kernels is left out
// in turn, in the simulator.
#include "sim/mutations.h"

#include "sim/quantize/kit.h"

namespace fa3::sim {
namespace {

struct Mutated {
  const char* name;
  Quantised of;
};
void PrintTo(const Mutated& m, std::ostream* out) { *out << m.name; }

const bool added = add_quantize<64, 64, 128>() && add_quantize<64, 64, 200>() &&
                   add_quantize<128, 128, 0>() && add_quantize<32, 0, 0>() &&
                   add_quantize<32, 0, 64>() && add_quantize<32, 16, 0>() && add_rotated<64>();

// Of one warpgroup. Where two share a stage it is missed.
constexpr char kWarps[] =
    "the simulator's wgmma is complete for four warps at once, and orders what they did before; "
    "a GPU promises that to each warp alone";
const std::vector<Spared> kSpared = {{"heads", "warps", kWarps}, {"means", "warps", kWarps}};

class QuantizeMutations : public testing::TestWithParam<Mutated> {};

TEST_P(QuantizeMutations, EveryLineIsMissed) {
  TestRuntime runtime;
  QuantizeRun quantisation(runtime, GetParam().of);
  Mutations(runtime, quantisation).expect_every_line_missed(GetParam().name, kSpared, 2);
}

INSTANTIATE_TEST_SUITE_P(Kernels, QuantizeMutations,
                         testing::Values(Mutated{"blocks", {64, 64, 128, false}},
                                         Mutated{"two_turns", {64, 64, 200, true}},
                                         Mutated{"heads", {128, 128, 0, false}},
                                         Mutated{"means", {128, 128, 0, true}},
                                         Mutated{"pieces", {32, 0, 0, true}},
                                         Mutated{"turned_pieces", {32, 16, 0, true}},
                                         Mutated{"piece_blocks", {32, 0, 64, false}},
                                         Mutated{"rotated", {64, 64, 1, false, 64}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::sim
