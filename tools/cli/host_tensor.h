// SPDX-License-Identifier: BSD-3-Clause
// host_tensor.h — dense tensors in memory: those of a file, and those to be written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tensor_file/tensor_file.h"

namespace fa3::cli {

// A dense tensor. The default one is absent.
struct HostTensor {
  std::string name;  // in the file
  fa3_dtype dtype = FA3_DTYPE_NONE;
  std::vector<int64_t> shape;  // as in memory
  std::shared_ptr<const void> data;

  bool present() const { return dtype != FA3_DTYPE_NONE; }

  // A view for the library. heads_first: memory is (batch, heads, seqlen, head_dim); then a rank-4
  // tensor is shown as (batch, seqlen, heads, head_dim) by its strides.
  fa3_tensor view(bool heads_first = false) const;
  tools::Tensor file_tensor() const;
};

// Uninitialised memory for a tensor. Throws CliError{kBadInput} when the size overflows,
// std::bad_alloc.
HostTensor allocate(const std::string& name, fa3_dtype dtype, const std::vector<int64_t>& shape);

// Reads a tensor. cast: the type to convert to, FA3_DTYPE_NONE = as it is. Casts round to nearest,
// ties to even. Throws TensorFileError; CliError{kBadInput} for a type that needs a cast which was
// not asked for.
HostTensor load(const tools::TensorFile& file, const std::string& name, fa3_dtype cast);

// Reads a tensor of positions, lengths or ids, I32 or I64, as I32. Throws as load() does, and
// CliError{kBadInput} for a value that 32 bits cannot hold, with the remedy.
HostTensor load_int32(const tools::TensorFile& file, const std::string& name,
                      const char* remedy =
                          "positions beyond that are not offered: split the "
                          "batch, or number ids anew");

// "(2, 128, 8, 64) bf16"
std::string shape_text(const std::vector<int64_t>& shape);
std::string tensor_text(const HostTensor& tensor);

}  // namespace fa3::cli
