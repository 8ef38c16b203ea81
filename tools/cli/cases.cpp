// SPDX-License-Identifier: BSD-3-Clause
// cases.cpp — reads bench/cases/*.json.
#include "cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "error.h"
#include "json_text.h"
#include "options.h"
#include "problem.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKeys[] = {
    "name",     "op",           "dtype",    "batch",         "heads_q",       "heads_kv",
    "seqlen_q", "seqlen_kv",    "varlen_q", "varlen_kv",     "head_dim_qk",   "head_dim_v",
    "mask",     "left",         "right",    "deterministic", "softmax_scale", "softcap",
    "alibi",    "sequence_ids", "v_dtype",  "kv_dtype",      "q_scale",       "k_scale",
    "v_scale",  "k_offset",     "v_offset", "attn_mask",     "mask_dims",     "dattn_mask",
    "top_left", "with"};

// ---- Values: whether they are of a type, and what that is called --------------------------------

bool fits(const Json& j, const std::string&) { return j.is_string(); }
bool fits(const Json& j, bool) { return j.is_boolean(); }
bool fits(const Json& j, double) { return j.is_number(); }
bool fits(const Json& j, int64_t) {
  return j.is_number_integer() &&
         (!j.is_number_unsigned() || j.get<uint64_t>() <= uint64_t{INT64_MAX});
}
bool fits(const Json& j, const std::vector<int64_t>&) {
  return j.is_array() &&
         std::all_of(j.begin(), j.end(), [](const Json& n) { return fits(n, int64_t{}); });
}
bool fits(const Json& j, const std::vector<std::string>&) {
  return j.is_array() &&
         std::all_of(j.begin(), j.end(), [](const Json& name) { return name.is_string(); });
}
const char* kind(const std::string&) { return "a string"; }
const char* kind(bool) { return "true or false"; }
const char* kind(double) { return "a number"; }
const char* kind(int64_t) { return "a whole number"; }
const char* kind(const std::vector<int64_t>&) { return "a list of whole numbers"; }
const char* kind(const std::vector<std::string>&) { return "a list of strings"; }

std::string shown(const Json& j) {
  constexpr size_t kMost = 60;
  const std::string text = dump(j);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

// Leaves the value alone where there is no such key.
template <class T>
void read(const Json& j, const char* key, T& value) {
  const auto at = j.find(key);
  if (at == j.end()) return;
  if (!fits(*at, value)) fail(kBadInput, "{}: got {}, need {}", key, shown(*at), kind(value));
  value = at->get<T>();
}

// One of a few words; the first is the default for an absent key.
std::string word(const Json& j, const char* key, const std::vector<std::string>& words) {
  std::string text = words[0];
  read(j, key, text);
  if (std::find(words.begin(), words.end(), text) == words.end())
    fail(kBadInput, "{}: got '{}', need one of {}", key, text, fmt::join(words, ", "));
  return text;
}

void read_scales(const Json& j, const char* key, verify::Scales& scales) {
  std::string text;
  read(j, key, text);
  scales = scales_value(key, text);
}

// Numbers of the C interface, by the names of their fields.
std::map<std::string, double> read_numbers(const Json& j) {
  std::map<std::string, double> numbers;
  for (const fa3_field& f : verify::numbers()) {
    double value = 0;
    int64_t whole = 0;
    if (f.kind == FA3_FIELD_F64) {
      read(j, f.name, value);
    } else {
      read(j, f.name, whole);
      const int64_t most = f.kind == FA3_FIELD_I32 ? INT32_MAX : INT64_MAX;
      if (whole < 0 || whole > most)
        fail(kBadInput, "{}: got {}, need 0 to {}", f.name, whole, most);
      value = static_cast<double>(whole);
    }
    if (value != 0) numbers[f.name] = value;
  }
  return numbers;
}

// ---- Cases --------------------------------------------------------------------------------------

void check_keys(const Json& j) {
  if (!j.is_object()) fail(kBadInput, "got {}, need an object", shown(j));
  std::vector<std::string> keys(std::begin(kKeys), std::end(kKeys));
  for (const fa3_field& f : verify::numbers()) keys.push_back(f.name);
  for (const auto& [key, value] : j.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail(kBadInput, "unknown key '{}', need one of {}", key, fmt::join(keys, ", "));
  for (const char* key : {"name", "dtype"})
    if (!j.contains(key)) fail(kBadInput, "{}: missing, need a string", key);
}

Case parse_case(const Json& j) {
  check_keys(j);
  Case c;
  read(j, "name", c.name);
  verify::Config& x = c.config;
  x.backward = word(j, "op", {"forward", "backward"}) == "backward";
  read(j, "deterministic", x.deterministic);
  if (x.deterministic && !x.backward)
    fail(kBadInput, "deterministic: a forward always is; leave it out, or make op backward");
  x.dtype = dtype_value(word(j, "dtype", {"f32", "f16", "bf16", "f8_e4m3", "i8"}));
  if (j.contains("v_dtype"))
    x.v_dtype = dtype_value(word(j, "v_dtype", {"f8_e4m3", "f16", "bf16"}));
  if (j.contains("kv_dtype")) x.kv_dtype = dtype_value(word(j, "kv_dtype", {"f8_e4m3"}));
  read_scales(j, "q_scale", x.q_scale);
  read_scales(j, "k_scale", x.k_scale);
  read_scales(j, "v_scale", x.v_scale);
  read(j, "k_offset", x.k_offset);
  read(j, "v_offset", x.v_offset);
  read(j, "varlen_q", x.varlen_q);
  read(j, "varlen_kv", x.varlen_kv);
  const int64_t sequences = std::max(std::ssize(x.varlen_q), std::ssize(x.varlen_kv));
  x.batch = std::max<int64_t>(sequences, 1);
  read(j, "batch", x.batch);
  if (sequences > 0 && x.batch != sequences)
    fail(kBadInput, "batch: got {}, need the number of varlen lengths ({}); leave batch out",
         x.batch, sequences);
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
  read(j, "alibi", x.alibi);
  read(j, "sequence_ids", x.sequence_ids);
  x.attn_mask = mask_dtype(word(j, "attn_mask", {"none", "bool", "f32", "input"}), x.dtype);
  read(j, "mask_dims", x.mask_dims);
  read(j, "with", x.with);
  read(j, "dattn_mask", x.dattn_mask);
  read(j, "top_left", x.top_left);
  x.numbers = read_numbers(j);
  const std::string mask = word(j, "mask", {"full", "causal", "window"});
  if (mask == "causal") x.mask = FA3_MASK_CAUSAL;
  if (mask == "window") x.mask = FA3_MASK_WINDOW;
  read(j, "left", x.left);
  read(j, "right", x.right);
  if (mask != "window" && (j.contains("left") || j.contains("right")))
    fail(kBadInput, "left, right: are for mask window, got {}; leave them out", mask);
  if (const std::string why = verify::contradiction(x); !why.empty()) fail(kBadInput, "{}", why);
  return c;
}

Json parse_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail(kBadInput, "not a regular file; name a JSON file of cases");
  std::ifstream file(path);
  if (!file) fail(kBadInput, "cannot be read; name a JSON file of cases");
  constexpr int kDepth = 8;  // more than cases have; deeper ones would take as deep a recursion
  size_t cases = 0;          // that have ended
  const auto follow = [&](int depth, Json::parse_event_t event, const Json&) {
    if (depth > kDepth)
      fail(kBadInput, "nested deeper than {} levels; name a JSON file of cases", kDepth);
    if (depth == 1 && event == Json::parse_event_t::object_end) ++cases;
    return true;
  };
  try {
    const Json j = Json::parse(file, follow);
    if (!j.is_array()) fail(kBadInput, "need a JSON array of cases");
    if (j.empty()) fail(kBadInput, "has no cases; name a JSON file of cases");
    return j;
  } catch (const Json::parse_error& e) {
    fail(kBadInput, "no JSON from byte {} on; correct it", e.byte);
  } catch (const Json::out_of_range& e) {
    const std::string text = e.what();  // "… number overflow parsing '1e999'"
    fail(kBadInput, "case {}: {} is beyond the range of a double; correct it", cases,
         text.substr(std::min(text.find('\''), text.size())));
  }
}

}  // namespace

void read_cases(const std::string& path, std::vector<Case>& cases) {
  std::string where = path;
  try {
    const Json all = parse_file(path);
    for (size_t i = 0; i < all.size(); ++i) {
      where = fmt::format("{}: case {}", path, i);
      cases.push_back(parse_case(all[i]));
    }
  } catch (const CliError& e) {
    fail(kBadInput, "--cases: {}: {}; see fa3 bench --help", where, e.what());
  }
}

}  // namespace fa3::cli
