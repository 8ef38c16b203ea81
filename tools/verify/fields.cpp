// SPDX-License-Identifier: BSD-3-Clause
// fields.cpp — the library's fields, asked for once.
#include "tools/verify/fields.h"

#include <algorithm>
#include <fa3/fa3.hpp>

namespace fa3::verify {

const std::vector<fa3_field>& fields(fa3_op op) {
  static const std::vector<fa3_field> forward = fa3::fields(FA3_OP_FORWARD);
  static const std::vector<fa3_field> backward = fa3::fields(FA3_OP_BACKWARD);
  static const std::vector<fa3_field> quantize = fa3::fields(FA3_OP_QUANTIZE);
  static const std::vector<fa3_field> combine = fa3::fields(FA3_OP_COMBINE);
  return op == FA3_OP_FORWARD    ? forward
         : op == FA3_OP_BACKWARD ? backward
         : op == FA3_OP_QUANTIZE ? quantize
                                 : combine;
}

const fa3_field* find_field(fa3_op op, const std::string& name) {
  for (const fa3_field& f : fields(op))
    if (name == f.name) return &f;
  return nullptr;
}

bool is_for_appending(const fa3_field& field) {
  constexpr std::string_view kNames[] = {"k_new",      "v_new",      "cu_seqlens_new",
                                         "rotary_cos", "rotary_sin", "rotary_position"};
  return std::ranges::find(kNames, field.name) != std::end(kNames);
}

const fa3_field* gradient_of(const std::string& input) {
  const fa3_field* const x = find_field(FA3_OP_BACKWARD, input);
  const fa3_field* const gradient = find_field(FA3_OP_BACKWARD, "d" + input);
  const bool both = x != nullptr && gradient != nullptr;
  return both && x->role == FA3_FIELD_OPTIONAL_INPUT && gradient->role == FA3_FIELD_OPTIONAL_OUTPUT
             ? gradient
             : nullptr;
}

const std::vector<fa3_field>& numbers() {
  static const std::vector<fa3_field> all = [] {
    constexpr const char* kKnown[] = {"max_seqlen_q",  "max_seqlen_kv",  "mask",
                                      "left",          "right",          "softmax_scale",
                                      "softcap",       "mask_alignment", "precision",
                                      "deterministic", "precision_seed", "v_image_layout"};
    std::vector<fa3_field> found;
    for (const fa3_op op : {FA3_OP_FORWARD, FA3_OP_BACKWARD})
      for (const fa3_field& f : fields(op)) {
        const auto is_it = [&](const auto& other) { return f.name == std::string(other); };
        if (is_tensor(f) || f.kind == FA3_FIELD_RESERVED || f.kind == FA3_FIELD_BLOCK) continue;
        if (std::ranges::any_of(kKnown, is_it)) continue;
        if (std::ranges::any_of(found, is_it, &fa3_field::name)) continue;
        found.push_back(f);
      }
    return found;
  }();
  return all;
}

std::string option_of(const fa3_field& field) {
  std::string name = field.name;
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

size_t bytes_of(const fa3_field& f) {
  switch (f.kind) {
    case FA3_FIELD_TENSOR:
      return sizeof(fa3_tensor);
    case FA3_FIELD_I32:
    case FA3_FIELD_RESERVED:
      return sizeof(int32_t);
    case FA3_FIELD_BLOCK:
      return sizeof(fa3_scale_block);
    default:
      return sizeof(int64_t);
  }
}

std::vector<std::string> dims_of(const fa3_field& f, bool varlen) {
  // "(batch, heads_q, seqlen_q)"
  const std::string text = varlen && f.varlen_shape != nullptr ? f.varlen_shape : f.shape;
  std::vector<std::string> dims;
  for (size_t begin = 1; begin < text.size();) {
    const size_t end = std::min(text.find(", ", begin), text.size() - 1);
    dims.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return dims;
}

bool has_rows_of_heads(const fa3_field& f) {
  if (!is_tensor(f)) return false;
  const std::vector<std::string> dims = dims_of(f, false);
  return dims.size() == 4 && dims[2].starts_with("heads");
}

bool has_pairs(const fa3_field& f) {
  if (!is_tensor(f)) return false;
  const std::vector<std::string> dims = dims_of(f, false);
  return dims.size() == 4 && dims[2] == "seqlen_q" && dims[3] == "seqlen_kv";
}

}  // namespace fa3::verify
