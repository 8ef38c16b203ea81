// SPDX-License-Identifier: BSD-3-Clause
// reference_bits_test.cpp — the bits of the FP64 reference's outputs, held to a file of
// tests/golden: what should change no result changes no line of it. Compilers, fused
// multiply-adds and versions of libm differ in last bits of FP64, which rounding to the outputs'
// types hides; the cpu backend computes in FP32, where they do not.
#include <fmt/core.h>

#include <utility>

#include "tests/kit/context.h"
#include "tests/kit/golden_kit.h"
#include "tests/kit/run.h"

namespace fa3 {
namespace {

using verify::Config;

// FNV-1a.
uint64_t hash_of(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

// What each has that the first has not.
const std::pair<const char*, void (*)(Config&)> kProblems[] = {
    {"plain", [](Config&) {}},
    {"causal", [](Config& c) { c.mask = FA3_MASK_CAUSAL; }},
    {"window", [](Config& c) { c.mask = FA3_MASK_WINDOW, c.left = 20, c.right = 5; }},
    {"top_left", [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.top_left = true; }},
    {"softcap", [](Config& c) { c.softcap = 5, c.softmax_scale = 0.3; }},
    {"alibi", [](Config& c) { c.alibi = true, c.heads_q = 8; }},
    {"ids", [](Config& c) { c.sequence_ids = 3; }},
    {"bool_mask", [](Config& c) { c.attn_mask = FA3_BOOL; }},
    {"added_mask", [](Config& c) { c.attn_mask = c.dtype, c.dattn_mask = c.backward; }},
    {"varlen",
     [](Config& c) {
       c.varlen_q = {1, 0, 20, 9}, c.varlen_kv = {40, 5, 33, 9};
     }},
    {"seqused",
     [](Config& c) {
       c.seqused_q = {7, 20}, c.seqused_kv = {0, 40};
     }},
    {"decode", [](Config& c) { c.seqlen_q = 2, c.seqlen_kv = 300; }},
};

// 2 sequences, grouped heads.
Config small(int32_t dtype, bool backward) {
  Config c;
  c.dtype = dtype, c.backward = backward;
  c.batch = 2, c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = 30, c.seqlen_kv = 50, c.head_dim_qk = 24, c.head_dim_v = 16;
  return c;
}

TEST(ReferenceBits, Golden) {
  fa3_context_options options = kit::default_options();
  options.backend = FA3_BACKEND_REFERENCE;
  const kit::Context context = kit::make_context(options);
  kit::Lines now;
  const auto add = [&](const Config& c, const char* name) {
    for (const auto& [output, bytes] : kit::output_bits(c, context.get()))
      now.push_back(fmt::format("{},{},{},{},{:016x}", verify::dtype_text(c.dtype), name,
                                c.backward ? "backward" : "forward", output, hash_of(bytes)));
  };
  for (const int32_t dtype : {FA3_F16, FA3_BF16})
    for (const bool backward : {false, true})
      for (const auto& [name, change] : kProblems) {
        Config c = small(dtype, backward);
        change(c);
        add(c, name);
      }
  add(small(FA3_F32, true), "plain");
  for (const int32_t dtype : {FA3_F8_E4M3, FA3_I8}) add(small(dtype, false), "plain");
  Config pages = small(FA3_BF16, false);
  pages.page_size = 16;
  add(pages, "pages");
  kit::expect_golden("reference_bits.csv", "dtype,problem,op,output,hash", std::move(now));
}

}  // namespace
}  // namespace fa3
