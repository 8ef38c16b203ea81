// SPDX-License-Identifier: BSD-3-Clause
// scales.h — scales of 8-bit tensors: what they are of, their shape, and which one an element has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// The elements of an 8-bit tensor that share a scale; in quotes as --q-scale names them.
struct Scales {
  enum class Of {
    kDefault,  // kHeads for tensors of 8 bits, kNone for others
    kNone,     // "none": all scales are 1
    kTensor,   // "tensor": (1)
    kHeads,    // "head": (batch, heads)
    kGroups,   // "group", of q: (batch, heads_kv)
    kTokens,   // "1": (batch, heads, seqlen) or, varlen, (total, heads)
    kPages,    // "page", of k and v: (pages, heads_kv)
    kBlocks,   // "64", "64x32", "1x0": (batch, heads, blocks of rows, blocks of columns)
  };
  Of of = Of::kDefault;
  int32_t rows = 0, cols = 0;  // of kBlocks; 0 = all; rows of kPages: those of a page
  bool operator==(const Scales&) const = default;
};

std::optional<Scales> parse_scales(const std::string& text);
std::string scales_text(const Scales& scales);  // "head" for kDefault

// The tensor that scales are for.
struct Scaled {
  int64_t batch, heads, heads_kv;
  int64_t rows;        // of the tensor: all tokens, or the extent of a dense tensor
  int64_t max_seqlen;  // = rows of dense tensors
  int64_t columns;
  bool varlen;
};

std::vector<int64_t> scale_shape(const Scales& scales, const Scaled& of);  // {} for kNone
fa3_scale_block scale_block(const Scales& scales);

// One row of one head of a tensor. heads: of that tensor.
struct ScaledRow {
  int64_t batch, row;  // row of sequence `batch`
  int64_t token;       // the tensor's row
  int64_t head, heads;
  bool varlen;
};

// Where the scale of that row's first block of columns lies; the next ones follow it. By fa3.h,
// from the shape of `scale` alone, whatever made it.
Index scale_index(const fa3_tensor& scale, const fa3_scale_block& block, const ScaledRow& at);

}  // namespace fa3::verify
