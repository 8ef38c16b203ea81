// SPDX-License-Identifier: BSD-3-Clause
// fields.h — the fields of the argument structs as the library publishes them, so that whatever
// treats all tensors alike is one loop.
#pragma once

#include <cstddef>
#include <string>
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

// visit(field, tensor) for each tensor of the struct, in its order.
template <class Args, class Visit>
void for_each_tensor(Args& args, const Visit& visit) {
  using T = std::conditional_t<std::is_const_v<Args>, const fa3_tensor, fa3_tensor>;
  for (const fa3_field& field : fields(op_of<std::remove_const_t<Args>>()))
    if (is_tensor(field)) visit(field, member<T>(args, field));
}

}  // namespace fa3::verify
