// SPDX-License-Identifier: BSD-3-Clause
// options.h — the options that several subcommands share, and how their text is checked.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "fa3/fa3.h"

namespace fa3::cli {

// Checks that run before the conversion, with one wording: `--batch: got 'x', need …`.
CLI::Validator whole_number(int64_t least, int64_t most = INT64_MAX);
CLI::Validator real_number();
CLI::Validator one_of(std::vector<std::string> names);

// "N,N,…" as integers. Throws CliError{kUsage} naming `option`.
std::vector<int64_t> parse_integers(const char* option, const std::string& text);

// Who computes, and how the command speaks.
struct SessionOptions {
  std::string backend = "auto";
  int threads = 0;  // 0 = the library's default
  bool json = false;
  bool quiet = false;
};
void add_session_options(CLI::App& app, SessionOptions& options);

// The mask and the scalars of a call.
struct ScoreOptions {
  bool causal = false;
  std::string window;        // "L,R", "" = none
  double softmax_scale = 0;  // 0 = 1/√head_dim
  double softcap = 0;        // 0 = off
};
void add_score_options(CLI::App& app, ScoreOptions& options);

struct Mask {
  fa3_mask kind = FA3_MASK_FULL;
  int64_t left = 0;
  int64_t right = 0;
};
Mask parse_mask(const ScoreOptions& options);
std::string mask_text(const Mask& mask);  // "full", "causal", "window 128,0"

fa3_dtype dtype_value(const std::string& name);  // "f32", "f16", "bf16"

}  // namespace fa3::cli
