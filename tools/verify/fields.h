// SPDX-License-Identifier: BSD-3-Clause
// fields.h — the fields of the argument structs as the library publishes them, so that whatever
// treats all tensors alike is one loop.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fa3/fa3.h"

namespace fa3::verify {

// In the order of the struct, without struct_size.
const std::vector<fa3_field>& fields(fa3_op op);

// nullptr = there is none of that name.
const fa3_field* find_field(fa3_op op, const std::string& name);

template <class Args>
constexpr fa3_op op_of() {
  if (std::is_same_v<Args, fa3_forward_args>) return FA3_OP_FORWARD;
  if (std::is_same_v<Args, fa3_combine_args>) return FA3_OP_COMBINE;
  return std::is_same_v<Args, fa3_backward_args> ? FA3_OP_BACKWARD : FA3_OP_QUANTIZE;
}

inline bool is_tensor(const fa3_field& f) { return f.kind == FA3_FIELD_TENSOR; }
inline bool is_output(const fa3_field& f) {
  return f.role == FA3_FIELD_OUTPUT || f.role == FA3_FIELD_OPTIONAL_OUTPUT;
}
inline bool is_optional(const fa3_field& f) {
  return f.role == FA3_FIELD_OPTIONAL_INPUT || f.role == FA3_FIELD_OPTIONAL_OUTPUT;
}

// Whether a call writes the tensor: an output, or the cache that a forward appends to.
template <class Args>
bool is_written(const Args& args, const fa3_field& f) {
  if constexpr (std::is_same_v<Args, fa3_forward_args>) {
    const std::string_view name = f.name;
    if ((name == "k" || name == "v") && args.k_new.rank != 0) return true;
  }
  return is_output(f);
}

// Of a forward that appends. Files have none: appending would write their k and v, and their rotary
// tables are those of fa3 quantize.
bool is_for_appending(const fa3_field& field);

// The optional output of the backward that is the gradient of an optional input, by its name;
// nullptr = it has none.
const fa3_field* gradient_of(const std::string& input);

// The numbers of a forward or backward that are 0 or off by default and say nothing of tensors:
// problems take them by their names. Others, such as softmax_scale, have members of their own.
const std::vector<fa3_field>& numbers();

// The option of a command that sets a field: "--num-splits".
std::string option_of(const fa3_field& field);

size_t bytes_of(const fa3_field& field);

// The names of a tensor's dimensions, outermost first. varlen: of the shape that cu_seqlens make.
std::vector<std::string> dims_of(const fa3_field& field, bool varlen);

// (batch, seqlen, heads, head_dim), as q: with heads and tokens in an order that files choose.
bool has_rows_of_heads(const fa3_field& field);
// (batch, heads, seqlen_q, seqlen_kv), as attn_mask.
bool has_pairs(const fa3_field& field);

// The member of a struct that a field describes.
template <class T, class Args>
T& member(Args& args, const fa3_field& field) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return *reinterpret_cast<T*>(reinterpret_cast<Byte*>(&args) + field.offset);
}

template <class Args>
void set_number(Args& args, const fa3_field& field, double value) {
  switch (field.kind) {
    case FA3_FIELD_I32:
      member<int32_t>(args, field) = static_cast<int32_t>(value);
      break;
    case FA3_FIELD_I64:
      member<int64_t>(args, field) = static_cast<int64_t>(value);
      break;
    case FA3_FIELD_U64:
      member<uint64_t>(args, field) = static_cast<uint64_t>(value);
      break;
    default:
      member<double>(args, field) = value;
  }
}

// visit(field, tensor) for each tensor of the struct, in its order.
template <class Args, class Visit>
void for_each_tensor(Args& args, const Visit& visit) {
  using T = std::conditional_t<std::is_const_v<Args>, const fa3_tensor, fa3_tensor>;
  for (const fa3_field& field : fields(op_of<std::remove_const_t<Args>>()))
    if (is_tensor(field)) visit(field, member<T>(args, field));
}

}  // namespace fa3::verify
