// SPDX-License-Identifier: BSD-3-Clause
// file_problem.h — an attention call on the tensors of a file: options, inputs, outputs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host_tensor.h"
#include "options.h"

namespace fa3::cli {

// An optional tensor's name: none = the default name where the file has such a tensor, "" = never.
using OptionalName = std::optional<std::string>;

// The path that means stdin and stdout.
inline constexpr const char* kStandardStream = "-";

struct FileOptions {
  std::string path;
  std::map<std::string, OptionalName> names;  // by field, as fa3_fields has it
  ScaleOptions scales;
  std::string dtype = "file";
  std::string out_dtype = "input";
  std::string grad_dtype = "input";
  std::string layout = "bshd";
  PrecisionOptions precision;
  int64_t max_seqlen_q = 0;
  int64_t max_seqlen_kv = 0;
  bool mmap = false;
  GradientOptions gradients;
};

void add_type_options(Parser& parser,
                      FileOptions& options);  // --dtype, --out-dtype, --grad-dtype, --q-scale, …
void add_layout_option(Parser& parser, FileOptions& options);   // --layout
void add_tensor_options(Parser& parser, FileOptions& options);  // names, bounds, --mmap
inline constexpr const char* kTensorGroup = "Tensors";          // of add_tensor_options

struct FileProblem {
  std::map<std::string, HostTensor> tensors;  // by field; outputs uninitialised
  fa3_scale_block q_block{}, k_block{}, v_block{};
  int32_t v_image_layout = 0;
  bool heads_first = false;
  int64_t max_seqlen_q = 0, max_seqlen_kv = 0;
  Mask mask;
  bool top_left = false;
  double softmax_scale = 0, softcap = 0;
  fa3_precision precision = FA3_PRECISION_DEFAULT;
  uint64_t precision_seed = 0;
  bool deterministic = false;

  const HostTensor& at(const std::string& field) const;  // absent where the file has none
  std::vector<const HostTensor*> outputs() const;        // that there are
  fa3_forward_args forward_args() const;
  fa3_backward_args backward_args() const;
};

// Loads the inputs and makes the outputs. Throws TensorFileError, CliError{kUsage, kBadInput}.
FileProblem load_problem(const tools::TensorFile& file, const FileOptions& options,
                         const ScoreOptions& score, bool backward);

tools::TensorFile open_file(const FileOptions& options);

// Refuses stdout where tensors cannot go there.
void check_output(const std::string& path, bool json);

// Of q, k or v: refuses what the library cannot report with the file's names.
void check_rank(const HostTensor& tensor);

// The longest varlen sequence, as the bound that a plan takes: with that of all tokens, many short
// sequences would be planned as if each were as long as all. Boundaries that make no sense are the
// library's to refuse: 0 = no bound.
int64_t longest(const HostTensor& cu_seqlens);

}  // namespace fa3::cli
