// SPDX-License-Identifier: BSD-3-Clause
// problem.h — problems given by their sizes on the command line, for check, bench and explain.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "options.h"
#include "tools/verify/problem.h"

namespace fa3::cli {

// Keys in a cache.
struct CacheOptions {
  int64_t page_size = 0, kv_slots = 0;  // 0 = none
  bool kv_begin = false, packed_kv = false;
  std::string append;  // "" = nothing
  bool packed_new = false;
  int64_t rotary_dim = 0;
};

// A problem by its sizes, for commands that need no particular data.
struct ProblemOptions {
  std::optional<std::string> dtype;     // default: f32
  std::optional<std::string> v_dtype;   // default: f8_e4m3 beside i8, else dtype
  std::optional<std::string> kv_dtype;  // default: dtype
  std::string out_dtype = "input";
  ScaleOptions scales;
  bool k_offset = false, v_offset = false;
  std::optional<int64_t> batch;  // default: as many as --varlen-* has, else 2
  int64_t heads_q = 4;
  std::optional<int64_t> heads_kv;  // default: heads_q
  int64_t seqlen_q = 256;
  std::optional<int64_t> seqlen_kv;  // default: seqlen_q
  int64_t head_dim = 64;
  std::optional<int64_t> head_dim_v;  // default: head_dim
  std::string varlen_q;               // "N,N,…", "" = dense
  std::string varlen_kv;
  bool backward = false;
  GradientOptions gradients;
  bool alibi = false;
  int64_t sequence_ids = 0;
  std::string attn_mask = "none", mask_dims = "bhqk";
  std::vector<std::string> with;  // optional inputs by the names of their fields
  ScoreOptions score;
  std::map<std::string, int64_t> whole_numbers;  // those of verify::numbers()
  std::map<std::string, double> real_numbers;
  CacheOptions cache;
};
void add_problem_options(Parser& parser, ProblemOptions& options);
void add_cache_options(Parser& parser, CacheOptions& options);
// Headings: of what is computed, of the options that give sizes.
inline constexpr const char* kAttentionGroup = "Attention";
inline constexpr const char* kSizeGroup = "Sizes";
// After parsing: these options mean nothing beside files of problems. Throws CliError{kUsage}.
void refuse_beside_cases(const Parser& parser);

// The problem that they describe. Throws CliError{kUsage} when they contradict each other.
verify::Config make_config(const ProblemOptions& options);

// The arguments of that problem without data, for calls that read none.
fa3_forward_args shapes_forward(const verify::Config& config);
fa3_backward_args shapes_backward(const verify::Config& config);

// The type of attn_mask: none, bool, f32 or input, which is q's.
int32_t mask_dtype(const std::string& name, int32_t dtype);

// Throws CliError{kFailed} when the tensors of the problem do not fit into `memory_bytes` (0 =
// unknown).
void require_memory(const verify::Config& config, int64_t memory_bytes);

// Sizes in one line: "bf16, batch 2, heads 8 (kv 2), seqlen 512 x 512, head_dim 64, causal".
std::string problem_text(const verify::Config& config);

}  // namespace fa3::cli
