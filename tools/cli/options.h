// SPDX-License-Identifier: BSD-3-Clause
// options.h — the options that several subcommands share, and how their text is checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "parser.h"
#include "tools/verify/scales.h"

namespace fa3::cli {

// "N,N,…" as integers. Throws CliError{kUsage} naming `option`.
std::vector<int64_t> parse_integers(const char* option, const std::string& text);

// Which backend computes, and how the command reports.
struct SessionOptions {
  std::string backend = "auto";
  int64_t threads = 0;  // 0 = the library's default
  bool json = false;
  bool quiet = false;
};
void add_session_options(Parser& parser, SessionOptions& options);

// The mask and the scalars of a call.
struct ScoreOptions {
  bool causal = false;
  std::string window;        // "L,R", "" = none
  double softmax_scale = 0;  // 0 = 1/√head_dim
  double softcap = 0;        // 0 = off
  bool top_left = false;     // mask, window and ALiBi count from the first query and key
};
void add_score_options(Parser& parser, ScoreOptions& options);

// Of a backward.
struct GradientOptions {
  bool deterministic = false;
  bool dattn_mask = false;  // the gradient of attn_mask too
};
void add_gradient_options(Parser& parser, GradientOptions& options);
// Throws CliError{kUsage} when they are given without --backward.
void check_gradients(const GradientOptions& options, bool backward);

struct Mask {
  fa3_mask kind = FA3_MASK_FULL;
  int64_t left = 0;
  int64_t right = 0;
};
Mask parse_mask(const ScoreOptions& options);
std::string mask_text(const Mask& mask);  // "full", "causal", "window 128,0"

fa3_dtype dtype_value(const std::string& name);  // "f32", "f16", "bf16", "f8_e4m3", "i8"

// Whether tensors of 16 bits are computed by way of 8.
struct PrecisionOptions {
  std::string name = "default";
  int64_t seed = 0;
};
void add_precision_options(Parser& parser, PrecisionOptions& options);
fa3_precision precision_value(const std::string& name);

// What the scales of 8-bit q, k, v are of; "" = not given.
struct ScaleOptions {
  std::string q, k, v;
};
void add_scale_options(Parser& parser, ScaleOptions& options, const char* without);
// Throws CliError{kUsage} naming `option`.
verify::Scales scales_value(const char* option, const std::string& text);

}  // namespace fa3::cli
