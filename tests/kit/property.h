// SPDX-License-Identifier: BSD-3-Clause
// property.h — random attention problems for RapidCheck, properties with a bounded number of cases.
//
// Seed 1, so that runs repeat, unless RC_PARAMS is set: "seed=7 max_success=5000" then rules for
// all properties. A failure prints its smallest case as a replay command.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "tests/kit/context.h"
#include "tools/verify/problem.h"

namespace fa3::verify {

inline void showValue(const Config& config, std::ostream& os) { os << replay_command(config); }

}  // namespace fa3::verify

namespace fa3::kit {

// Expects a property to hold in `cases` cases (fewer under sanitizers).
template <class Property>
void expect_property(const std::string& name, int cases, Property&& property) {
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = name;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  if (std::getenv("RC_PARAMS") == nullptr) {
    params.seed = 1;
    params.maxSuccess = std::max(cases / reduction(), 10);
  }
  const auto result = rc::detail::checkTestable(property, metadata, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  EXPECT_TRUE(result.template is<rc::detail::SuccessResult>()) << text.str();
}

// Lengths: short ones, both sides of every tile boundary, and rarely some hundreds.
inline rc::Gen<int64_t> any_length() {
  return rc::gen::weightedOneOf<int64_t>(
      {{5, rc::gen::inRange<int64_t>(0, 34)},
       {5, rc::gen::element<int64_t>(1, 5, 6, 7, 11, 12, 13, 15, 16, 17, 31, 33, 63, 64, 65)},
       {3, rc::gen::element<int64_t>(95, 96, 97, 127, 129, 143, 144, 145, 191, 192, 193)},
       {1, rc::gen::element<int64_t>(255, 257, 511, 512, 513, 575, 576, 577)}});
}

inline rc::Gen<int64_t> any_head_dim() {
  return rc::gen::weightedOneOf<int64_t>(
      {{4, rc::gen::element<int64_t>(16, 32, 64, 80, 96, 128)},
       {4, rc::gen::inRange<int64_t>(1, 70)},
       {1, rc::gen::element<int64_t>(127, 129, 192, 255, 256, 320, 511, 512)}});
}

// One sequence axis: either dense, or lengths; and perhaps seqused.
inline void draw_axis(int64_t batch, bool is_varlen, int64_t longest, int64_t* seqlen,
                      std::vector<int64_t>* varlen, std::vector<int64_t>* seqused, int64_t* spare) {
  const auto length = [&] { return std::min(*any_length(), longest); };
  *seqlen = is_varlen ? 1 : length();
  for (int64_t b = 0; is_varlen && b < batch; ++b) varlen->push_back(length());
  *spare = is_varlen ? *rc::gen::element<int64_t>(0, 0, 1, 5) : 0;
  if (*rc::gen::inRange(0, 4) != 0) return;
  for (int64_t b = 0; b < batch; ++b)
    seqused->push_back(*rc::gen::inRange<int64_t>(0, (is_varlen ? (*varlen)[b] : *seqlen) + 1));
}

// New keys of each sequence, and perhaps a rotation.
inline void draw_append(verify::Config& c) {
  const auto batch = c.varlen_q.empty() ? c.batch : std::ssize(c.varlen_q);
  const auto keys = [&](int64_t b) { return c.seqused_kv.empty() ? c.seqlen_kv : c.seqused_kv[b]; };
  int64_t least = c.seqlen_kv;
  for (int64_t b = 0; b < batch; ++b) least = std::min(least, keys(b));
  c.packed_new = *rc::gen::arbitrary<bool>();
  const int64_t each = *rc::gen::inRange<int64_t>(0, least + 1);
  for (int64_t b = 0; b < batch; ++b)
    c.append.push_back(c.packed_new ? *rc::gen::inRange<int64_t>(0, keys(b) + 1) : each);
  if (*rc::gen::inRange(0, 3) == 0) return;
  c.rotary_dim = 2 * *rc::gen::inRange<int64_t>(0, c.head_dim_qk / 2 + 1);
  if (c.rotary_dim > 0 && *rc::gen::arbitrary<bool>()) c.numbers["rotary_layout"] = 1;
}

// The queries are a tree, for which nothing else may say what they see.
inline void draw_tree(verify::Config& c, int64_t queries) {
  constexpr int64_t kMost = 64;  // where there is no bound, of all rows
  const int64_t total = std::reduce(c.varlen_q.begin(), c.varlen_q.end(), c.spare_q);
  if (queries > kMost || (!c.varlen_q.empty() && total > kMost)) return;
  c.mask = FA3_MASK_FULL, c.left = c.right = 0;
  c.top_left = false;
  c.sequence_ids = 0, c.scattered_ids = false, c.attn_mask = 0;
  c.numbers.erase("attention_chunk");
  c.append = {}, c.packed_new = false, c.rotary_dim = 0, c.numbers.erase("rotary_layout");
  c.with.push_back("tree_mask");
}

// Any legal problem whose query-key pairs times head dims stay below some millions.
inline rc::Gen<verify::Config> any_config(bool backward) {
  return rc::gen::exec([backward] {
    using verify::Layout;
    verify::Config c;
    c.backward = backward;
    c.dtype = *rc::gen::element<int32_t>(FA3_F32, FA3_F16, FA3_BF16);
    c.out_dtype = *rc::gen::element<int32_t>(0, 0, FA3_F32);
    const int64_t batch = *rc::gen::inRange<int64_t>(1, 4);
    c.heads_kv = *rc::gen::inRange<int64_t>(1, 4);
    c.heads_q = c.heads_kv * *rc::gen::element<int64_t>(1, 1, 2, 3, 5, 8);
    c.head_dim_qk = *any_head_dim();
    c.head_dim_v = *rc::gen::inRange(0, 3) != 0 ? c.head_dim_qk : *any_head_dim();

    // No axis longer than `longest`: bounds the work.
    const int64_t per_pair = batch * c.heads_q * (c.head_dim_qk + c.head_dim_v);
    const int64_t pairs = (backward ? 3'000'000 : 6'000'000) / per_pair;
    const int64_t longest_q = std::max<int64_t>(pairs / 32, 8);
    const bool is_varlen_q = *rc::gen::inRange(0, 3) == 0,
               is_varlen_kv = *rc::gen::inRange(0, 3) == 0;
    draw_axis(batch, is_varlen_q, longest_q, &c.seqlen_q, &c.varlen_q, &c.seqused_q, &c.spare_q);
    const int64_t queries =
        is_varlen_q ? *std::max_element(c.varlen_q.begin(), c.varlen_q.end()) : c.seqlen_q;
    draw_axis(batch, is_varlen_kv, std::max<int64_t>(pairs / std::max<int64_t>(queries, 1), 8),
              &c.seqlen_kv, &c.varlen_kv, &c.seqused_kv, &c.spare_kv);
    if (!is_varlen_q && !is_varlen_kv) c.batch = batch;

    c.mask = *rc::gen::element(FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW);
    if (c.mask == FA3_MASK_WINDOW) {
      const auto side = rc::gen::weightedOneOf<int64_t>(
          {{1, rc::gen::just<int64_t>(-1)}, {4, rc::gen::inRange<int64_t>(0, 70)}});
      c.left = *side;
      c.right = *side;
    }
    c.softmax_scale = *rc::gen::element(0.0, 0.0, 0.0, 0.3, 1.0, -0.25);
    c.softcap = *rc::gen::element(0.0, 0.0, 0.0, 0.5, 5.0, 50.0);
    c.alibi = *rc::gen::inRange(0, 3) == 0;
    if (*rc::gen::inRange(0, 3) == 0) {
      c.sequence_ids = *rc::gen::element<int64_t>(1, 2, 3, 5, 9, 40);
      c.scattered_ids = *rc::gen::inRange(0, 3) == 0;
    }
    if (!is_varlen_q && *rc::gen::inRange(0, 3) == 0) {
      c.attn_mask = *rc::gen::element<int32_t>(FA3_BOOL, FA3_F32, c.dtype);
      c.mask_dims = *rc::gen::element<std::string>("bhqk", "qk", "bk", "hqk", "k", "bq", "");
      c.dattn_mask = backward && c.attn_mask != FA3_BOOL && *rc::gen::arbitrary<bool>();
    }
    c.top_left = *rc::gen::inRange(0, 4) == 0;
    c.magnitude = *rc::gen::element(1.0, 1.0, 1.0, 0.1, 6.0);
    c.lse = *rc::gen::inRange(0, 4) != 0;
    c.dlse = backward && *rc::gen::arbitrary<bool>();
    c.deterministic = backward && *rc::gen::arbitrary<bool>();
    c.layout = *rc::gen::element(Layout::kDense, Layout::kHeadsFirst, Layout::kSeqFirst,
                                 Layout::kPadded, Layout::kInterleaved, Layout::kBroadcast);
    c.seed = *rc::gen::inRange<uint64_t>(0, 1000);
    if (*rc::gen::inRange(0, 3) == 0) c.with = {"sinks"};
    if (!backward && !is_varlen_kv && *rc::gen::inRange(0, 3) == 0) draw_append(c);
    if (*rc::gen::inRange(0, 4) == 0)
      c.numbers["attention_chunk"] =
          static_cast<double>(*rc::gen::element<int64_t>(1, 2, 7, 16, 33, 64, 100, 300));
    if (!backward && *rc::gen::inRange(0, 3) == 0) draw_tree(c, queries);
    if (!backward && *rc::gen::inRange(0, 3) == 0) c.with.push_back("max_logit");
    if (!verify::contradiction(c).empty()) c.layout = Layout::kDense;
    return c;
  });
}

}  // namespace fa3::kit
