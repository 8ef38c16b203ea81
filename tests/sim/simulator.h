// SPDX-License-Identifier: BSD-3-Clause
// simulator.h — contexts of backend sim, one that takes a row of one's choice, and a problem of
// several tiles, for tests of the forward kernel through the C interface.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/kit/context.h"

namespace fa3 {

inline fa3_context_options simulator_options() {
  fa3_context_options options = kit::default_options();
  options.backend = FA3_BACKEND_SIM;
  return options;
}
inline fa3_context* simulator() {
  static const kit::Context context = kit::make_context(simulator_options());
  return context.get();
}

// A text that fa3_explain has of the forward's kernel: "row", "tuning_key"; "" where it has none.
inline std::string explained(verify::Config c, fa3_context* context, const char* name) {
  c.alignment = 16;  // of a GPU
  const verify::Tensors tensors = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, tensors);
  size_t size = 0;
  EXPECT_EQ(fa3_explain(context, FA3_OP_FORWARD, &args, nullptr, 0, &size), FA3_OK)
      << fa3_last_error();
  std::string json(size, ' ');
  EXPECT_EQ(fa3_explain(context, FA3_OP_FORWARD, &args, json.data(), json.size(), &size), FA3_OK);
  const std::string member = std::string("\"") + name + "\": \"";
  size_t at = json.find(member, json.find("\"sm90\""));
  if (at == std::string::npos) return "";
  at += member.size();
  return json.substr(at, json.find('"', at) - at);
}

// A context that takes this row of the table for this problem, in place of the rule's choice.
inline kit::Context tuned_simulator(const verify::Config& c, const char* row) {
  const std::string path = testing::TempDir() + "fa3_row_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"fa3_tuning": 1, "gpu": "any", "fa3": ")" << fa3_version()
                      << R"(", "problems": [{"problem": ")"
                      << explained(c, simulator(), "tuning_key") << R"(", "row": ")" << row
                      << R"("}]})";
  const kit::ScopedEnv tuning("FA3_TUNING", path.c_str());
  kit::Context context = kit::make_context(simulator_options());
  std::remove(path.c_str());
  return context;
}

inline verify::Config causal() {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.head_dim_qk = c.head_dim_v = 64;
  c.heads_q = 2;
  c.seqlen_q = c.seqlen_kv = 200;
  c.mask = FA3_MASK_CAUSAL;
  c.alignment = 16;
  return c;
}
// Four heads of queries, two of keys, with these many rows and columns.
inline verify::Config grouped(int64_t q, int64_t kv) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.head_dim_qk = c.head_dim_v = 64;
  c.alignment = 16;
  c.seqlen_q = q;
  c.seqlen_kv = kv;
  return c;
}

// What fa3_explain() says of a problem.
inline std::string plan_text(const verify::Config& c) {
  const verify::Tensors tensors = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, tensors);
  size_t size = 0;
  EXPECT_EQ(fa3_explain(simulator(), FA3_OP_FORWARD, &args, nullptr, 0, &size), FA3_OK)
      << fa3_last_error();
  std::string plan(size, ' ');
  EXPECT_EQ(fa3_explain(simulator(), FA3_OP_FORWARD, &args, plan.data(), size, &size), FA3_OK);
  return plan;
}

}  // namespace fa3
