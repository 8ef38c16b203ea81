// SPDX-License-Identifier: BSD-3-Clause
// wgmma_probes.cpp — wgmma with every operand list and with every type and order of operands.
#include <fmt/core.h>

#include <iterator>

#include "device/ptx/mma_types.h"
#include "tests/compile/probes.h"

namespace fa3::kit {
namespace {

const struct {
  MmaType type;
  const char *name, *text, *depth, *result;
} kTypes[] = {
    {MmaType::kF16, "kF16", "f16", "k16", "f32"},
    {MmaType::kBf16, "kBf16", "bf16", "k16", "f32"},
    {MmaType::kTf32, "kTf32", "tf32", "k8", "f32"},
    {MmaType::kE4m3, "kE4m3", "e4m3", "k32", "f32"},
    {MmaType::kE5m2, "kE5m2", "e5m2", "k32", "f32"},
    {MmaType::kS8, "kS8", "s8", "k32", "s32"},
    {MmaType::kU8, "kU8", "u8", "k32", "s32"},
};

// The statements of one wgmma; what follows "p" in PTX is `tail`.
void add_wgmma(std::vector<Probe>& probes, size_t a, size_t b, int n, bool registers, int trans_a,
               int trans_b) {
  const auto &ta = kTypes[a], &tb = kTypes[b];
  const std::string begin = fmt::format(
      "AccFor<MmaType::{0}, {1}> acc;\nacc.zero();\nAFrag a;\n"
      "for (int i = 0; i < 4; ++i) a[i] = w + i;\nwgmma_fence();\n",
      ta.name, n);
  const std::string end =
      "wgmma_commit();\nwgmma_wait<0>();\nfence_regs(acc);\n"
      "keep(acc[0]);";
  const bool is_16_bit = size_of(ta.type) == 2;
  const std::string call =
      registers ? fmt::format("wgmma_rs<MmaType::{}, {}, {}, MmaType::{}>(acc, a, d, w > 1);\n",
                              ta.name, n, trans_b != 0, tb.name)
                : fmt::format("wgmma_ss<MmaType::{}, {}, {}, {}, MmaType::{}>(acc, d, d, w > 1);\n",
                              ta.name, n, trans_a != 0, trans_b != 0, tb.name);
  std::string tail = is_int8(ta.type) ? "" : ", 1, 1";
  if (is_16_bit && !registers) tail += fmt::format(", {}", trans_a);
  if (is_16_bit) tail += fmt::format(", {}", trans_b);
  const std::string mnemonic = fmt::format("wgmma.mma_async.sync.aligned.m64n{}{}.{}.{}.{} ", n,
                                           ta.depth, ta.result, ta.text, tb.text);
  const char* function = registers ? "wgmma_rs" : "wgmma_ss";
  probes.push_back({function, begin + call + end, {mnemonic, ", p" + tail + ";}"}});
}

}  // namespace

std::vector<Probe> wgmma_probes() {
  std::vector<Probe> probes;
  for (int n = 8; n <= 256; n += 8) {  // every operand list
    for (const size_t type : {size_t{1}, size_t{5}}) {
      if (!wgmma_has_columns(kTypes[type].type, n)) continue;
      for (const bool registers : {false, true}) add_wgmma(probes, type, type, n, registers, 0, 0);
    }
  }
  for (size_t a = 0; a < std::size(kTypes); ++a) {  // every type
    for (size_t b = 0; b < std::size(kTypes); ++b) {
      if (!wgmma_has_types(kTypes[a].type, kTypes[b].type)) continue;
      for (const bool registers : {false, true}) {
        const int orders = size_of(kTypes[a].type) == 2 ? 2 : 1;
        for (int trans_a = 0; trans_a < (registers ? 1 : orders); ++trans_a) {
          for (int trans_b = 0; trans_b < orders; ++trans_b) {
            add_wgmma(probes, a, b, 16, registers, trans_a, trans_b);
          }
        }
      }
    }
  }
  return probes;
}

}  // namespace fa3::kit
