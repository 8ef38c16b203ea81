// SPDX-License-Identifier: BSD-3-Clause
// args.cpp — from the C structs to Args.
#include "api/args.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

namespace fa3 {
namespace {

// Sizes of the structs in the first release. They never change; see read_struct.
constexpr size_t kForwardArgsFirstSize = 928;
constexpr size_t kBackwardArgsFirstSize = 1408;
constexpr size_t kQuantizeArgsFirstSize = 904;
constexpr size_t kCombineArgsFirstSize = 392;
static_assert(sizeof(fa3_forward_args) >= kForwardArgsFirstSize, "fields are only ever appended");
static_assert(sizeof(fa3_backward_args) >= kBackwardArgsFirstSize, "fields are only ever appended");
static_assert(sizeof(fa3_quantize_args) >= kQuantizeArgsFirstSize, "fields are only ever appended");
static_assert(sizeof(fa3_combine_args) >= kCombineArgsFirstSize, "fields are only ever appended");

// A struct_size above this counts as uninitialised, and its bytes are not read.
constexpr size_t kPlausibleStructBytes = 1 << 16;

// The address of a member of a struct.
template <class Struct>
auto* member(Struct* of, size_t at) {
  using Byte = std::conditional_t<std::is_const_v<Struct>, const char, char>;
  return reinterpret_cast<Byte*>(of) + at;
}

// The fields of the operation's struct.
template <class CArgs>
Result<Args> args_of(fa3_op op, size_t first_size, const void* source) {
  CArgs c;
  const std::string where = std::string(op_name(op)) + ": args";
  FA3_RETURN_IF_ERROR(read_struct(where.c_str(), source, first_size, &c, sizeof c));
  Args args;
  args.op = op;
  for (const TensorRow& row : kTensors) {
    const size_t at = row.at[op - 1];
    if (at != kNoField) std::memcpy(&args.tensor[row.id], member(&c, at), sizeof(fa3_tensor));
  }
  for (const ScalarRow& row : kScalars) {
    const size_t at = row.at[op - 1];
    if (at == kNoField) continue;
    if (row.kind != FA3_FIELD_RESERVED) {
      std::memcpy(member(&args, row.in_args), member(&c, at), bytes_of(row.kind));
      continue;
    }
    int32_t reserved = 0;
    std::memcpy(&reserved, member(&c, at), sizeof reserved);
    if (reserved != 0) {
      return invalid("{}: {}={}, need 0; start the struct as `= {{0}}`", op_name(op), row.name,
                     reserved);
    }
  }
  return args;
}

bool same_scalar(const ScalarRow& row, const Args& a, const Args& b) {
  const char *const x = member(&a, row.in_args), *const y = member(&b, row.in_args);
  if (row.kind != FA3_FIELD_F64) return std::memcmp(x, y, bytes_of(row.kind)) == 0;
  double left = 0, right = 0;  // compared as numbers: −0 is 0
  std::memcpy(&left, x, sizeof left);
  std::memcpy(&right, y, sizeof right);
  return left == right;
}

}  // namespace

Status read_struct(const char* where, const void* source, size_t first_size, void* copy,
                   size_t size) {
  if (source == nullptr) return invalid("{}: the struct is NULL; need a pointer to one", where);
  size_t given = 0;
  std::memcpy(&given, source, sizeof given);  // struct_size comes first in every struct
  if (given < first_size || given > kPlausibleStructBytes) {
    return invalid(
        "{}: struct_size={} is that of no release, need {} to {}; set it to sizeof of the struct",
        where, given, first_size, kPlausibleStructBytes);
  }
  std::memset(copy, 0, size);
  std::memcpy(copy, source, std::min(given, size));
  const auto* bytes = static_cast<const unsigned char*>(source);
  for (size_t i = size; i < given; ++i) {
    if (bytes[i] != 0) {
      return invalid(
          "{}: struct_size={} is that of a newer fa3 than this library ({} bytes), and byte {} of "
          "what it added is {}, need 0; leave newer fields at 0 or update the library",
          where, given, size, i, bytes[i]);
    }
  }
  return {};
}

Result<Args> read_args(fa3_op op, const void* source) {
  if (op == FA3_OP_FORWARD) return args_of<fa3_forward_args>(op, kForwardArgsFirstSize, source);
  if (op == FA3_OP_BACKWARD) return args_of<fa3_backward_args>(op, kBackwardArgsFirstSize, source);
  if (op == FA3_OP_QUANTIZE) return args_of<fa3_quantize_args>(op, kQuantizeArgsFirstSize, source);
  if (op == FA3_OP_COMBINE) return args_of<fa3_combine_args>(op, kCombineArgsFirstSize, source);
  return invalid(
      "op={} is unknown; need FA3_OP_FORWARD (1), FA3_OP_BACKWARD (2), FA3_OP_QUANTIZE (3) or "
      "FA3_OP_COMBINE (4)",
      static_cast<int>(op));
}

bool same_shapes(const Args& a, const Args& b) {
  const auto same = [](const fa3_tensor& x, const fa3_tensor& y) {
    return x.dtype == y.dtype && x.rank == y.rank && std::ranges::equal(x.shape, y.shape) &&
           std::ranges::equal(x.stride, y.stride);
  };
  return a.op == b.op && std::ranges::equal(a.tensor, b.tensor, same) &&
         std::ranges::all_of(kScalars, [&](const ScalarRow& row) {
           return row.kind == FA3_FIELD_RESERVED || same_scalar(row, a, b);
         });
}

void drop_tensors_without_data(Args& args) {
  for (const TensorRow& row : kTensors) {
    fa3_tensor& t = args.tensor[row.id];
    if (t.data != nullptr || t.rank == 0 || !is_optional(role_of(args.op, row.id))) continue;
    // A tensor with no elements needs no data; malformed shapes are left to make_problem.
    const int rank = std::clamp(t.rank, 0, FA3_MAX_RANK);
    if (std::any_of(t.shape, t.shape + rank, [](int64_t n) { return n <= 0; })) continue;
    t = fa3_tensor{};
    if (row.form == Form::kImage) args.v_image_layout = FA3_V_IMAGE_NONE;
  }
}

}  // namespace fa3
