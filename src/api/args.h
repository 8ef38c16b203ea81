// SPDX-License-Identifier: BSD-3-Clause
// args.h — reads the C structs into Args, so that every check is one loop over tensors.
#pragma once

#include <cstddef>

#include "core/scalars.h"
#include "core/status.h"

namespace fa3 {

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
