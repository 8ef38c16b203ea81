// SPDX-License-Identifier: BSD-3-Clause
// cases.cpp — reads bench/cases/*.json.
#include "cases.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "error.h"
#include "options.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
void read(const Json& j, const char* key, T& value) {
  if (j.contains(key)) value = j.at(key).get<T>();
}

Case parse_case(const Json& j) {
  Case c{j.at("name").get<std::string>(), {}};
  verify::Config& x = c.config;
  x.backward = j.value("op", "forward") == "backward";
  x.dtype = dtype_value(j.at("dtype").get<std::string>());
  read(j, "varlen_q", x.varlen_q);
  read(j, "varlen_kv", x.varlen_kv);
  x.batch = std::max(std::ssize(x.varlen_q), std::ssize(x.varlen_kv));
  read(j, "batch", x.batch);
  read(j, "heads_q", x.heads_q);
  x.heads_kv = x.heads_q;
  read(j, "heads_kv", x.heads_kv);
  read(j, "seqlen_q", x.seqlen_q);
  x.seqlen_kv = x.seqlen_q;
  read(j, "seqlen_kv", x.seqlen_kv);
  read(j, "head_dim_qk", x.head_dim_qk);
  x.head_dim_v = x.head_dim_qk;
  read(j, "head_dim_v", x.head_dim_v);
  read(j, "softmax_scale", x.softmax_scale);
  read(j, "softcap", x.softcap);
  const std::string mask = j.value("mask", "full");
  if (mask != "full" && mask != "causal" && mask != "window")
    fail(kBadInput, "mask '{}', need full, causal or window", mask);
  if (mask == "causal") x.mask = FA3_MASK_CAUSAL;
  if (mask == "window") {
    x.mask = FA3_MASK_WINDOW;
    read(j, "left", x.left);
    read(j, "right", x.right);
  }
  if (const std::string why = verify::contradiction(x); !why.empty()) fail(kBadInput, "{}", why);
  return c;
}

}  // namespace

void read_cases(const std::string& path, std::vector<Case>& cases) {
  std::ifstream file(path);
  if (!file) fail(kBadInput, "--cases: {}: cannot be read; name a JSON file of cases", path);
  size_t index = 0;
  try {
    for (const Json& j : Json::parse(file)) {
      cases.push_back(parse_case(j));
      ++index;
    }
  } catch (const Json::exception& e) {
    fail(kBadInput, "--cases: {}: case {}: {}", path, index, e.what());
  } catch (const CliError& e) {
    fail(kBadInput, "--cases: {}: case {}: {}", path, index, e.what());
  }
}

}  // namespace fa3::cli
