// SPDX-License-Identifier: BSD-3-Clause
// fwd_case.h — the text of a tuning case: a problem, and the fields of the planned configuration to
// change. fa3_tune_fwd's head comment has the format.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/problem.h"
#include "device/attn/kv_range.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/fwd/plan.h"

namespace fa3::sm90 {

using Fields = std::map<std::string, std::string>;

inline Fields fields_of(const std::string& text) {
  Fields fields;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const size_t at = word.find('=');
    if (at == std::string::npos) throw std::runtime_error("need name=value, got " + word);
    fields[word.substr(0, at)] = word.substr(at + 1);
  }
  return fields;
}

// Takes a field, so that what is left at the end is unknown.
inline std::string take(Fields& fields, const std::string& name, const std::string& otherwise) {
  const auto found = fields.find(name);
  if (found == fields.end()) return otherwise;
  const std::string value = found->second;
  fields.erase(found);
  return value;
}
inline int64_t take_number(Fields& fields, const std::string& name, int64_t otherwise) {
  const std::string value = take(fields, name, "");
  if (value.empty()) return otherwise;
  size_t end = 0;
  const int64_t number = std::stoll(value, &end);
  if (end != value.size()) throw std::runtime_error(name + "=" + value + ": need an integer");
  return number;
}
inline void expect_none(const Fields& fields) {
  if (!fields.empty()) throw std::runtime_error(fields.begin()->first + ": no such field");
}

// A problem, and with lengths=log_normal where its sequences begin and end.
struct FwdCase {
  Problem problem;
  std::vector<int32_t> cu_seqlens;
};

// `count` lengths of that mean, log-normal with sigma 1, at least 1.
inline std::vector<int32_t> log_normal_lengths(int64_t count, int64_t mean) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> draw(0, 1);
  std::vector<double> drawn(static_cast<size_t>(count));
  for (double& x : drawn) x = draw(random);
  const double sum = std::accumulate(drawn.begin(), drawn.end(), 0.);
  std::vector<int32_t> ends{0};
  for (const double x : drawn)
    ends.push_back(ends.back() +
                   std::max(1, static_cast<int32_t>(x * static_cast<double>(count * mean) / sum)));
  return ends;
}

inline FwdCase case_of(Fields f) {
  FwdCase made;
  Problem& p = made.problem;
  const std::string type = take(f, "dtype", "bf16");
  if (type != "f16" && type != "bf16")
    throw std::runtime_error("dtype=" + type + ": need f16 or bf16");
  const fa3_dtype dtype = type == "f16" ? FA3_F16 : FA3_BF16;
  p.head_dim_qk = take_number(f, "d", 128);
  p.head_dim_v = take_number(f, "dv", p.head_dim_qk);
  const int64_t seqlen = take_number(f, "seqlen", 8192);
  p.heads_q = take_number(f, "heads", 2048 / p.head_dim_qk);
  p.heads_kv = take_number(f, "heads_kv", p.heads_q);
  p.batch = take_number(f, "batch", std::max<int64_t>(1, 16384 / seqlen));
  p.q.rows = p.q.max_seqlen = seqlen;
  p.kv.rows = p.kv.max_seqlen = take_number(f, "seqlen_kv", seqlen);
  const std::string mask = take(f, "mask", "full");
  if (mask != "full" && mask != "causal" && mask != "window")
    throw std::runtime_error("mask=" + mask + ": need full, causal or window");
  p.mask = mask == "causal" ? FA3_MASK_CAUSAL : mask == "window" ? FA3_MASK_WINDOW : FA3_MASK_FULL;
  p.left = take_number(f, "left", 0), p.right = take_number(f, "right", 0);
  p.softcap = static_cast<double>(take_number(f, "softcap", 0));
  p.softmax_scale = 1 / std::sqrt(static_cast<double>(p.head_dim_qk));
  const std::string lengths = take(f, "lengths", "equal");
  if (lengths != "equal" && lengths != "log_normal")
    throw std::runtime_error("lengths=" + lengths + ": need equal or log_normal");
  expect_none(f);
  if (lengths == "log_normal") {
    made.cu_seqlens = log_normal_lengths(p.batch, seqlen);
    p.q.varlen = true;
    p.q.rows = made.cu_seqlens.back();
    p.q.max_seqlen = 0;
    for (size_t b = 0; b + 1 < made.cu_seqlens.size(); ++b)
      p.q.max_seqlen =
          std::max<int64_t>(p.q.max_seqlen, made.cu_seqlens[b + 1] - made.cu_seqlens[b]);
    p.kv = p.q;
  }
  const auto layout = [&](TensorId id, int64_t rows, int64_t heads, int64_t d) {
    p.layout[id] = {dtype, p.q.varlen ? 0 : rows * heads * d, heads * d, d};
  };
  layout(kQ, p.q.rows, p.heads_q, p.head_dim_qk);
  layout(kK, p.kv.rows, p.heads_kv, p.head_dim_qk);
  layout(kV, p.kv.rows, p.heads_kv, p.head_dim_v);
  layout(kO, p.q.rows, p.heads_q, p.head_dim_v);
  p.layout[kLse] = {FA3_F32, p.q.varlen ? 0 : p.heads_q * p.q.rows, 1, p.q.rows};
  return made;
}

// Pairs that one head of a sequence sees.
inline double pairs_of(const Problem& p, const SeqLens& len) {
  if (p.mask == FA3_MASK_FULL) return static_cast<double>(len.q) * static_cast<double>(len.kv);
  Band band{Band::kUnbounded, 0};
  if (p.mask == FA3_MASK_WINDOW) band = {p.left, p.right};
  double pairs = 0;
  for (int64_t i = 0; i < len.q; ++i)
    pairs += static_cast<double>(visible_keys(band, len, i).size());
  return pairs;
}

inline double flops_of(const FwdCase& made) {
  const Problem& p = made.problem;
  double pairs = 0;
  if (made.cu_seqlens.empty())
    pairs = static_cast<double>(p.batch) * pairs_of(p, {p.q.rows, p.kv.rows});
  for (size_t b = 0; b + 1 < made.cu_seqlens.size(); ++b) {
    const int64_t length = made.cu_seqlens[b + 1] - made.cu_seqlens[b];
    pairs += pairs_of(p, {length, length});
  }
  return 2 * pairs * static_cast<double>(p.heads_q * (p.head_dim_qk + p.head_dim_v));
}

template <class E>
E enumerator(const std::string& field, const std::string& text) {
  for (const auto& name : names_of(E{})) {
    if (name.word == text) return name.value;
  }
  throw std::runtime_error(field + "=" + text + ": no such value");
}

// Fields of FwdConfig by their paths, as in tile.kv=128; enumerators by their words.
template <class Config>
void set_fields(Config& config, Fields& f, const std::string& path = "") {
  for_each_field(config, [&](const char* name, auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    const std::string named = path + name;
    if constexpr (std::is_class_v<Field>) {
      set_fields(field, f, named + ".");
    } else if (const std::string value = take(f, named, ""); !value.empty()) {
      if constexpr (std::is_enum_v<Field>) {
        field = enumerator<Field>(named, value);
      } else {
        field = static_cast<Field>(std::stoi(value));
      }
    }
  });
}

// The plan with fields changed. Throws with the limit that a configuration breaks.
inline FwdPlan with_fields(FwdPlan plan, Fields f, const Problem& p, int sms) {
  FwdConfig c = plan.config;
  set_fields(c, f);
  const int64_t head_group = take_number(f, "head_group", plan.order.head_group);
  const std::string counter = take(f, "counter", "");
  const bool longest_first = take_number(f, "longest_first", plan.order.longest_first) != 0;
  expect_none(f);
  if (head_group < 1) throw std::runtime_error("head_group: at least 1");
  if (const char* why = why_illegal(c)) throw std::runtime_error(why);
  plan = with_config(plan, c, p, sms);
  plan.order.head_group = static_cast<u32>(head_group);
  plan.order.longest_first = longest_first;
  if (!counter.empty()) plan.counter = counter != "0";
  return plan;
}

}  // namespace fa3::sm90
