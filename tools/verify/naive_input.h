// SPDX-License-Identifier: BSD-3-Clause
// naive_input.h — the tensors of a call, one head of one sequence at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/naive.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// The sequence of batch entry b on one axis.
struct Sequence {
  int64_t begin = 0, len = 0;
};
Sequence key_sequence(const fa3_forward_args& args, int64_t b);
Sequence sequence(const fa3_tensor& rows, const fa3_tensor& cu, const fa3_tensor& used, int64_t b);

// Index of token i of batch entry b in a dense (rank 4) or varlen (rank 3) tensor.
Index token_index(const fa3_tensor& t, int64_t b, int64_t i, int64_t head);
Index lse_index(const fa3_tensor& lse, int64_t b, int64_t i, int64_t head);

// An input and, of 8 bits, what its codes mean; of keys where they lie, if not by batch entry.
struct Input {
  const fa3_tensor& values;
  fa3_tensor scale{}, offset{};
  fa3_scale_block block{};
  bool varlen = false;
  fa3_tensor page_table{}, kv_batch_idx{};
};

Input input_q(const fa3_forward_args& args);
Input input_k(const fa3_forward_args& args);
Input input_v(const fa3_forward_args& args);

// Index of a row of keys or values of sequence b, counted as key_sequence counts.
Index key_index(const Input& x, int64_t b, int64_t row, int64_t head);

// Rows of one head of one sequence as floats, (len, head_dim); of an Input times their scales,
// without offsets.
std::vector<float> gather(const fa3_tensor& t, int64_t b, const Sequence& s, int64_t head);
std::vector<float> gather(const Input& x, int64_t b, const Sequence& s, int64_t head);
// (head_dim), {} = none.
std::vector<float> gather_offset(const Input& x, int64_t b, int64_t head);

// What attn_mask adds to the score of query i and key j; −inf: it hides the key.
float mask_value(const fa3_tensor& mask, int64_t b, int64_t head, int64_t i, int64_t j);

float* row_of(const Tensor& t, const Index& index);

// Empty rows: 0, and −inf for LSE.
Estimate make_estimate(const fa3_tensor& like, float empty);

}  // namespace fa3::verify
