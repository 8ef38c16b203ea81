// SPDX-License-Identifier: BSD-3-Clause
// args.h — the arguments of all operations as one struct, so that every check is one loop over
// tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "core/tensors.h"

namespace fa3 {

// The arguments of any operation. Tensors that the operation does not have are absent (rank 0).
struct Args {
  fa3_op op = FA3_OP_FORWARD;
  std::array<fa3_tensor, kTensorCount> tensor{};
  int64_t max_seqlen_q = 0;
  int64_t max_seqlen_kv = 0;
  int32_t mask = 0;
  int64_t left = 0;
  int64_t right = 0;
  double softmax_scale = 0;
  double softcap = 0;
  std::array<fa3_scale_block, 3> scale_block{};  // of q, k, v; of codes the first
  int32_t precision = 0;
  int32_t rotary_layout = 0;
  int32_t hadamard = 0;
  uint64_t seed = 0;  // of signs
  int32_t deterministic = 0;
  int32_t v_image_layout = 0;
  int32_t mask_alignment = 0;
  int32_t num_splits = 0;
  int32_t sm_margin = 0;
  int32_t batch_invariant = 0;
};

// Copies the caller's struct of `size` bytes (as this library knows it) by the rules of
// struct_size: a smaller one, down to first_size, leaves the missing fields zero; a larger one is
// accepted when the bytes unknown to us are zero.
Status read_struct(const char* where, const void* source, size_t first_size, void* copy,
                   size_t size);

// args points to the operation's struct: fa3_forward_args, … Reserved fields must be 0.
Result<Args> read_args(fa3_op op, const void* args);

// Are these the same but for addresses? Then so are their problems.
bool same_shapes(const Args& a, const Args& b);

// The one-call functions treat an optional tensor without data as absent.
void drop_tensors_without_data(Args& args);

}  // namespace fa3
