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
  app.add_flag("--causal", o.causal,
               "Hide later keys; bottom-right aligned: the last query sees the last key")
      ->group("Attention");
  app.add_option(
         "--window", o.window,
         "Keys visible before and after the (bottom-right aligned) diagonal, in tokens, both "
         "ends included; -1 = unbounded [no window]")
      ->type_name("L,R")
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
  if (o.causal && !o.window.empty())
    fail(kUsage, "--window: got {} beside --causal, need one of them; causal is --window -1,0",
         o.window);
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

}  // namespace fa3::cli
