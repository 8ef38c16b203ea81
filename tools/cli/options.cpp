// SPDX-License-Identifier: BSD-3-Clause
// options.cpp — shared options: names, units, defaults, checks.
#include "options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "error.h"

namespace fa3::cli {
namespace {

bool parse_integer(const std::string& text, int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end && !text.empty();
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        int64_t value = 0;
        if (parse_integer(text, &value) && value >= least && value <= most) {
          text = std::to_string(value);  // CLI11 would read a leading 0 as octal
          return "";
        }
        if (most == INT64_MAX)
          return fmt::format("got '{}', need a whole number from {}", text, least);
        return fmt::format("got '{}', need a whole number from {} to {}", text, least, most);
      },
      "");
}

CLI::Validator real_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        char* stop = nullptr;
        std::strtod(text.c_str(), &stop);
        const bool whole = !text.empty() && *stop == '\0';
        return whole ? "" : fmt::format("got '{}', need a number, e.g. 0.125", text);
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> names) {
  return CLI::Validator(
      [names](std::string& text) -> std::string {
        if (std::find(names.begin(), names.end(), text) != names.end()) return "";
        return fmt::format("got '{}', need one of {}", text, fmt::join(names, ", "));
      },
      "");
}

std::vector<int64_t> parse_integers(const char* option, const std::string& text) {
  std::vector<int64_t> values;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t value = 0;
    if (!parse_integer(text.substr(begin, end - begin), &value))
      fail(kUsage, "{}: got '{}', need whole numbers separated by commas, e.g. 128,64", option,
           text);
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

void add_session_options(CLI::App& app, SessionOptions& o) {
  app.add_option("--backend", o.backend,
                 "Who computes: auto (follows the device), cpu, reference (FP64), sim, cuda")
      ->type_name("NAME")
      ->check(one_of({"auto", "cpu", "reference", "sim", "cuda"}))
      ->capture_default_str()
      ->group("Execution");
  app.add_option("--threads", o.threads,
                 "Most threads to use; 0 = FA3_NUM_THREADS if set, else every core allowed")
      ->type_name("N")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str()
      ->group("Execution");
  app.add_flag("--json", o.json, "Print JSON on stdout instead of text")->group("Execution");
  app.add_flag("--quiet", o.quiet, "Print nothing but errors; no progress bar")->group("Execution");
}

void add_score_options(CLI::App& app, ScoreOptions& o) {
  CLI::Option* causal =
      app.add_flag("--causal", o.causal,
                   "Hide later keys; bottom-right aligned: the last query sees the last key");
  causal->group("Attention");
  app.add_option(
         "--window", o.window,
         "Keys visible before and after the (bottom-right aligned) diagonal, in tokens, both "
         "ends included; -1 = unbounded. Default: no window")
      ->type_name("L,R")
      ->excludes(causal)
      ->group("Attention");
  app.add_option("--softmax-scale", o.softmax_scale,
                 "Factor of the scores before the softmax; 0 = 1/sqrt(head_dim)")
      ->type_name("X")
      ->check(real_number())
      ->capture_default_str()
      ->group("Attention");
  app.add_option("--softcap", o.softcap, "c in c*tanh(score/c), in units of scaled scores; 0 = off")
      ->type_name("X")
      ->check(real_number())
      ->capture_default_str()
      ->group("Attention");
}

Mask parse_mask(const ScoreOptions& o) {
  if (o.causal) return {FA3_MASK_CAUSAL, 0, 0};
  if (o.window.empty()) return {};
  const std::vector<int64_t> sides = parse_integers("--window", o.window);
  if (sides.size() != 2)
    fail(kUsage, "--window: got '{}', need two whole numbers L,R, e.g. 128,0", o.window);
  return {FA3_MASK_WINDOW, sides[0], sides[1]};
}

std::string mask_text(const Mask& mask) {
  if (mask.kind == FA3_MASK_FULL) return "full";
  if (mask.kind == FA3_MASK_CAUSAL) return "causal";
  return fmt::format("window {},{}", mask.left, mask.right);
}

fa3_dtype dtype_value(const std::string& name) {
  if (name == "f32") return FA3_F32;
  if (name == "f16") return FA3_F16;
  if (name == "bf16") return FA3_BF16;
  fail(kUsage, "dtype: got '{}', need f32, f16 or bf16", name);
}

void add_problem_options(CLI::App& app, ProblemOptions& o) {
  const auto add = [&app](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->type_name(type)->group("Problem");
  };
  add("--dtype", o.dtype, "TYPE", "Element type of q, k, v: f32, f16, bf16 [f32]")
      ->check(one_of({"f32", "f16", "bf16"}));
  add("--out-dtype", o.out_dtype, "TYPE", "Element type of o and the gradients: input (= --dtype), f32")
      ->check(one_of({"input", "f32", "f16", "bf16"}))
      ->capture_default_str();
  const auto size = [&](const char* name, auto& value, const char* text) {
    return add(name, value, "N", text)->check(whole_number(0));
  };
  size("--batch", o.batch, "Sequences [2; with --varlen-* their number]");
  size("--heads-q", o.heads_q, "Query heads, a multiple of --heads-kv")->capture_default_str();
  size("--heads-kv", o.heads_kv, "Key and value heads [= --heads-q]");
  size("--seqlen-q", o.seqlen_q, "Queries per sequence, in tokens")->capture_default_str();
  size("--seqlen-kv", o.seqlen_kv, "Keys per sequence, in tokens [= --seqlen-q]");
  size("--head-dim", o.head_dim, "Elements per head of q and k, 1...512")->capture_default_str();
  size("--head-dim-v", o.head_dim_v, "Elements per head of v and o, 1...512 [= --head-dim]");
  add("--varlen-q", o.varlen_q, "N,N,...", "Packed queries: the length of each sequence, in tokens");
  add("--varlen-kv", o.varlen_kv, "N,N,...", "Packed keys: the length of each sequence, in tokens");
  app.add_flag("--backward", o.backward, "The backward too: gradients of q, k, v")->group("Problem");
  add_score_options(app, o.score);
}

namespace {

std::vector<int64_t> parse_lengths(const char* option, const std::string& text) {
  if (text.empty()) return {};
  std::vector<int64_t> lengths = parse_integers(option, text);
  for (const int64_t n : lengths)
    if (n < 0) fail(kUsage, "{}: got {}, need lengths from 0", option, n);
  return lengths;
}

int64_t resolve_batch(const ProblemOptions& o, const verify::Config& c) {
  const int64_t count_q = std::ssize(c.varlen_q), count_kv = std::ssize(c.varlen_kv);
  if (count_q > 0 && count_kv > 0 && count_q != count_kv)
    fail(kUsage, "--varlen-kv: got {} lengths, need as many as --varlen-q has ({})", count_kv, count_q);
  const int64_t count = std::max(count_q, count_kv);
  if (count == 0) return o.batch.value_or(2);
  if (o.batch.value_or(count) != count)
    fail(kUsage, "--batch: got {}, need the number of --varlen-* lengths ({}); leave --batch out",
         *o.batch, count);
  return count;
}

}  // namespace

verify::Config make_config(const ProblemOptions& o) {
  const Mask mask = parse_mask(o.score);
  verify::Config c;
  c.backward = o.backward;
  c.dtype = dtype_value(o.dtype.value_or("f32"));
  c.out_dtype = o.out_dtype == "input" ? 0 : dtype_value(o.out_dtype);
  c.heads_q = o.heads_q;
  c.heads_kv = o.heads_kv.value_or(o.heads_q);
  c.seqlen_q = o.seqlen_q;
  c.seqlen_kv = o.seqlen_kv.value_or(o.seqlen_q);
  c.head_dim_qk = o.head_dim;
  c.head_dim_v = o.head_dim_v.value_or(o.head_dim);
  c.varlen_q = parse_lengths("--varlen-q", o.varlen_q);
  c.varlen_kv = parse_lengths("--varlen-kv", o.varlen_kv);
  c.batch = resolve_batch(o, c);
  c.mask = mask.kind;
  c.left = mask.left;
  c.right = mask.right;
  c.softmax_scale = o.score.softmax_scale;
  c.softcap = o.score.softcap;
  return c;
}

}  // namespace fa3::cli
