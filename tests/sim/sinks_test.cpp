// SPDX-License-Identifier: BSD-3-Clause
// sinks_test.cpp — attention sinks on Hopper in the simulator: every kernel that stores finished
// rows, and the one that makes their gradient.
#include <cmath>
#include <functional>
#include <string>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Config;

Config config(int64_t q, int64_t kv) {
  Config c = grouped(q, kv);
  c.with = {"sinks"};
  return c;
}

struct Kind {
  const char* name;
  std::function<void(Config&)> change;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
std::string name_of(const testing::TestParamInfo<Kind>& info) { return info.param.name; }

constexpr int64_t kHeadDim8 =
    kit::kSanitized ? 64 : 128;  // of 8 bits; a sanitized simulator has one

class SimSinks : public testing::TestWithParam<Kind> {
 protected:
  // Odd seeds have sinks of 16 bits, those that are 3 modulo 4 their gradient, too.
  static void expect_all_right(Config c) {
    GetParam().change(c);
    for (c.seed = 0; c.seed < (kit::kSanitized ? 1u : 4u); ++c.seed)
      kit::expect_right(c, simulator());
  }
};

class SimFwdSinks : public SimSinks {};
TEST_P(SimFwdSinks, AreRight) { expect_all_right(config(150, 140)); }
const Kind kForward[] = {
    {"Full", [](Config&) {}},
    {"Causal", [](Config& c) { c.mask = FA3_MASK_CAUSAL; }},  // some rows see no key
    {"NoKeys", [](Config& c) { c.seqlen_kv = 0; }},
    {"WindowSoftcap",
     [](Config& c) { c.mask = FA3_MASK_WINDOW, c.left = 30, c.right = 0, c.softcap = 5; }},
    {"F32", [](Config& c) { c.out_dtype = FA3_F32, c.mask = FA3_MASK_CAUSAL; }},
    {"Varlen",
     [](Config& c) {
       c.varlen_q = {150, 0, 3, 20}, c.varlen_kv = {140, 3, 0, 65};
       c.seqused_q = {100, 0, 3, 20};
       c.spare_q = 9;
     }},
    {"AddedMask", [](Config& c) { c.attn_mask = FA3_F32, c.alibi = true; }},
    {"Pages", [](Config& c) { c.page_size = 16, c.seqused_kv = {133}; }},
    {"Decode", [](Config& c) { c.seqlen_q = 2, c.seqlen_kv = 600, c.mask = FA3_MASK_CAUSAL; }},
    {"DecodeNoKeys",
     [](Config& c) {
       c.seqlen_q = 2, c.batch = 3, c.seqused_kv = {0, 140, 1};
     }},
    {"DecodeUnsplit",
     [](Config& c) {
       c.seqlen_q = 1, c.batch = 3, c.numbers = {{"num_splits", 1}};
     }},
    {"DecodeWide", [](Config& c) { c.seqlen_q = 4, c.heads_q = 52, c.heads_kv = 4, c.batch = 4; }},
    {"DecodeWideUnsplit",
     [](Config& c) {
       c.seqlen_q = 4, c.heads_q = 64, c.heads_kv = 4, c.batch = 4;
       c.numbers = {{"num_splits", 1}}, c.seqused_q = {4, 2, 0, 3};
     }},
    {"DecodeByParts",
     [](Config& c) {
       c.seqlen_q = 2, c.seqlen_kv = 2200, c.numbers = {{"batch_invariant", 1}};
     }},
    {"PromptByParts",
     [](Config& c) {
       c.seqlen_kv = 2200, c.numbers = {{"batch_invariant", 1}};
     }},
    {"E4m3",
     [](Config& c) {
       c.dtype = FA3_F8_E4M3, c.out_dtype = FA3_BF16, c.head_dim_qk = c.head_dim_v = kHeadDim8;
       c.mask = FA3_MASK_CAUSAL;
     }},
    {"Int8",
     [](Config& c) {
       c.dtype = FA3_I8, c.out_dtype = FA3_BF16, c.head_dim_qk = c.head_dim_v = kHeadDim8;
       c.k_offset = c.v_offset = true, c.mask = FA3_MASK_CAUSAL;
     }},
};
INSTANTIATE_TEST_SUITE_P(Kinds, SimFwdSinks, testing::ValuesIn(kForward), name_of);

class SimBwdSinks : public SimSinks {};
TEST_P(SimBwdSinks, AreRight) {
  Config c = config(150, 140);
  c.backward = c.dlse = true;
  expect_all_right(c);
}
const Kind kBackward[] = {
    {"Full", [](Config& c) { c.seqlen_q = 300; }},
    {"CausalDeterministic", [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.deterministic = true; }},
    {"NoKeys", [](Config& c) { c.seqlen_kv = 0; }},
    {"NoQueries", [](Config& c) { c.seqlen_q = 0; }},
    // More than a launch of bwd_delta has in the simulator.
    {"ManySequences", [](Config& c) { c.batch = 40, c.seqlen_q = 3, c.seqlen_kv = 5; }},
    {"Varlen",
     [](Config& c) {
       c.varlen_q = {150, 0, 3, 200}, c.varlen_kv = {140, 3, 0, 65};
       c.seqused_q = {130, 0, 3, 190};
       c.spare_q = 9;
     }},
    {"Softcap", [](Config& c) { c.softcap = 5, c.mask = FA3_MASK_CAUSAL; }},
    {"AlibiAndIds", [](Config& c) { c.alibi = true, c.sequence_ids = 3; }},
    {"AddedMask", [](Config& c) { c.attn_mask = FA3_F32, c.dattn_mask = true; }},
};
INSTANTIATE_TEST_SUITE_P(Kinds, SimBwdSinks, testing::ValuesIn(kBackward), name_of);

// A value of NaN reaches the rows that see it, however little of the weight the sink leaves.
TEST(SimSinksNan, ReachTheirRows) {
  for (const int64_t queries : {1, 4, 70}) {
    for (const int64_t splits : {0, 1}) {
      Config c = config(queries, 90);
      c.heads_q = queries == 4 ? 32 : 4;  // packed rows as rows of GEMMs
      c.numbers = {{"num_splits", static_cast<double>(splits)}};
      const verify::Tensors t = verify::make_tensors(c);
      for (int64_t h = 0; h < c.heads_q; ++h)
        verify::set(t.with.at("sinks").view, {h}, h % 2 == 0 ? 300 : 1);
      verify::set(t.v.view, {0, 40, 0, 7}, std::nan(""));
      const fa3_forward_args args = verify::forward_args(c, t);
      ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
      for (int64_t h = 0; h < c.heads_q; ++h) {
        EXPECT_FALSE(std::isnan(verify::get(t.o.view, {0, 0, h, 6})));
        EXPECT_EQ(std::isnan(verify::get(t.o.view, {0, 0, h, 7})), h < c.heads_q / 2)
            << queries << ", " << splits << ", " << h;
        if (h % 2 == 0) {
          EXPECT_EQ(verify::get(t.o.view, {0, 0, h, 6}), 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa3
