// SPDX-License-Identifier: BSD-3-Clause
// fields.cpp — the tables of tensors and scalars as the C interface publishes them: fa3_fields.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/dims.h"
#include "core/scalars.h"

namespace fa3 {
namespace {

constexpr size_t kFieldFirstSize = 80;  // in the first release that has it; never changes
static_assert(sizeof(fa3_field) >= kFieldFirstSize, "fields are only ever appended");

// A field, and the text that it points to.
struct Published {
  fa3_field field{};
  std::string shape, varlen_shape;
};

const char* types_of(TypeRule rule) {
  switch (rule) {
    case TypeRule::kAsQ:
      return "f32, f16, bf16, f64, f8_e4m3, i8";
    case TypeRule::kAsKey:
      return "type of q; beside f32, f16, bf16 also f8_e4m3";
    case TypeRule::kAsV:
      return "type of q, or of k where that is f8_e4m3; beside i8 f8_e4m3, f16, bf16";
    case TypeRule::kAsQOrF32:
      return "type of q, f32; for 8 bits f32, f16, bf16";
    case TypeRule::kF32:
      return "f32";
    case TypeRule::kI32:
      return "i32";
    case TypeRule::kFloat:
      return "f32, f16, bf16";
    case TypeRule::kCode:
      return "f8_e4m3, i8";
    case TypeRule::kE4m3:
      return "f8_e4m3";
    case TypeRule::kMask:
      return "bool, f32, type of q";
    case TypeRule::kMaskGrad:
      return "f32, type of attn_mask";
    case TypeRule::kSink:
      return "f32, f16, bf16, type of q";
    case TypeRule::kSinkGrad:
      return "f32, type of sinks";
  }
  return "";
}

fa3_dtype only_type_of(TypeRule rule) {
  return rule == TypeRule::kF32    ? FA3_F32
         : rule == TypeRule::kI32  ? FA3_I32
         : rule == TypeRule::kE4m3 ? FA3_F8_E4M3
                                   : FA3_DTYPE_NONE;
}

fa3_field_role role_in_c(Role role) {
  switch (role) {
    case Role::kNone:
      break;
    case Role::kInput:
      return FA3_FIELD_INPUT;
    case Role::kOptionalInput:
      return FA3_FIELD_OPTIONAL_INPUT;
    case Role::kOutput:
      return FA3_FIELD_OUTPUT;
    case Role::kOptionalOutput:
      return FA3_FIELD_OPTIONAL_OUTPUT;
  }
  return FA3_FIELD_OPTION;
}

// The names of its dimensions, of the most that it may have. A mask has rows of dense queries.
std::string shape_text(fa3_op op, const TensorRow& row, bool varlen) {
  Problem p;
  p.op = op;
  p.q.varlen = varlen && row.form != Form::kMask;
  p.kv.varlen = p.fresh.varlen = varlen;
  fa3_tensor given{};
  given.rank = row.form == Form::kSlopes ? 1 : FA3_MAX_RANK - 1;
  const Dims dims = expected_dims(p, row.id, given);
  return fmt::format("({})", fmt::join(dims.name, dims.name + dims.rank, ", "));
}

Published tensor_field(fa3_op op, const TensorRow& row) {
  Published p;
  fa3_field& f = p.field;
  f.name = row.name;
  f.offset = row.at[op - 1];
  f.kind = FA3_FIELD_TENSOR;
  f.role = role_in_c(row.role[op - 1]);
  f.dtype = only_type_of(row.type);
  f.strided = has_layout(row.id) && row.form != Form::kImage;
  f.types = types_of(row.type);
  f.help = row.help;
  p.shape = shape_text(op, row, false);
  p.varlen_shape = shape_text(op, row, true);
  if (row.form == Form::kScale || row.form == Form::kOffset) f.of = tensor_name(scaled_by(row.id));
  if (row.form == Form::kImage) f.of = tensor_name(op == FA3_OP_QUANTIZE ? kCodes : kV);
  return p;
}

Published scalar_field(fa3_op op, const ScalarRow& row) {
  constexpr TensorId kCoded[] = {kQ, kK, kV};
  Published p;
  fa3_field& f = p.field;
  f.name = row.name;
  f.offset = row.at[op - 1];
  f.kind = row.kind;
  f.help = row.help;
  if (row.kind != FA3_FIELD_BLOCK) return p;
  const size_t block = (row.in_args - offsetof(Args, scale_block)) / sizeof(fa3_scale_block);
  f.of = tensor_name(op == FA3_OP_QUANTIZE ? kCodes : kCoded[block]);
  return p;
}

// In the order of the struct: fields are only ever appended to that.
std::vector<Published> publish(fa3_op op) {
  std::vector<Published> all;
  for (const TensorRow& row : kTensors)
    if (row.at[op - 1] != kNoField) all.push_back(tensor_field(op, row));
  for (const ScalarRow& row : kScalars)
    if (row.at[op - 1] != kNoField) all.push_back(scalar_field(op, row));
  std::ranges::sort(all, {}, [](const Published& p) { return p.field.offset; });
  for (Published& p : all) {
    if (p.field.kind != FA3_FIELD_TENSOR) continue;
    p.field.shape = p.shape.c_str();
    if (p.varlen_shape != p.shape) p.field.varlen_shape = p.varlen_shape.c_str();
  }
  return all;
}

const std::vector<Published>& published(fa3_op op) {
  static const std::vector<Published> fields[kOpCount] = {
      publish(FA3_OP_FORWARD), publish(FA3_OP_BACKWARD), publish(FA3_OP_QUANTIZE),
      publish(FA3_OP_COMBINE)};
  return fields[op - 1];
}

Status get_field(fa3_op op, int32_t index, fa3_field* field) {
  if (op < FA3_OP_FORWARD || op > FA3_OP_COMBINE) {
    return invalid(
        "fields: op={} is unknown; need FA3_OP_FORWARD (1), FA3_OP_BACKWARD (2), "
        "FA3_OP_QUANTIZE (3) or FA3_OP_COMBINE (4)",
        static_cast<int>(op));
  }
  if (field == nullptr) return invalid("fields: field is NULL; pass its address");
  const size_t size = field->struct_size;
  if (size < kFieldFirstSize) {
    return invalid(
        "fields: struct_size={} is that of no release, need at least {}; set it to sizeof of the "
        "struct",
        size, kFieldFirstSize);
  }
  const std::vector<Published>& fields = published(op);
  if (index < 0 || index >= static_cast<int64_t>(fields.size())) {
    return invalid("fields: index={}, but {} has {} fields; need 0…{}", index, op_name(op),
                   fields.size(), fields.size() - 1);
  }
  fa3_field out = fields[static_cast<size_t>(index)].field;
  out.struct_size = size;
  std::memcpy(field, &out, std::min(size, sizeof out));
  return {};
}

}  // namespace
}  // namespace fa3

fa3_status fa3_fields(fa3_op op, int32_t index, fa3_field* field) {
  return FA3_BOUNDARY({ return fa3::get_field(op, index, field); });
}
