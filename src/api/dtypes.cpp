// SPDX-License-Identifier: BSD-3-Clause
// dtypes.cpp — which element types go together: the rules of fa3.h on those of a call's tensors.
#include "api/dtypes.h"

#include <fmt/format.h>

#include <string>

#include "core/dtype.h"

namespace fa3 {
namespace {

Status check_dtype_of_q(const Args& args) {
  const int32_t q_dtype = args.tensor[kQ].dtype;
  if (is_8_bit(q_dtype) && args.op != FA3_OP_FORWARD) {
    return unsupported("{}: q.dtype={}: 8-bit tensors have no gradient; need f32, f16 or bf16",
                       op_name(args.op), dtype_name(q_dtype));
  }
  if (q_dtype != FA3_F32 && q_dtype != FA3_F16 && q_dtype != FA3_BF16 && q_dtype != FA3_F64 &&
      !is_8_bit(q_dtype)) {
    return invalid("{}: q.dtype={}, need f32, f16, bf16, f8_e4m3, i8 or f64; cast it",
                   op_name(args.op), dtype_name(q_dtype));
  }
  return {};
}

// k and v. Those of 8 bits may stand beside q of more.
Status check_dtype_of_keys(const Args& args, TensorId id) {
  const int32_t dtype = args.tensor[id].dtype, q_dtype = args.tensor[kQ].dtype;
  const bool may_be_codes = args.op == FA3_OP_FORWARD && args.precision == FA3_PRECISION_DEFAULT &&
                            (q_dtype == FA3_F16 || q_dtype == FA3_BF16 || q_dtype == FA3_F32);
  const bool beside_codes = may_be_codes && id == kV && args.tensor[kK].dtype == FA3_F8_E4M3;
  const bool of_integers = q_dtype == FA3_I8 && id == kV;
  bool legal = dtype == q_dtype;
  std::string need =
      fmt::format("{} as q{}", dtype_name(q_dtype), may_be_codes && id == kK ? ", or f8_e4m3" : "");
  if (may_be_codes && id == kK) legal = legal || dtype == FA3_F8_E4M3;
  if (beside_codes) {
    legal = dtype == FA3_F8_E4M3;
    need = "f8_e4m3 as k";
  }
  if (of_integers) {
    legal = dtype == FA3_F8_E4M3 || dtype == FA3_F16 || dtype == FA3_BF16;
    need = "f8_e4m3, f16 or bf16 beside q of i8";
  }
  if (legal) return {};
  if (dtype != FA3_I32 && !is_8_bit(q_dtype) && !is_8_bit(dtype) && !beside_codes) {
    return unsupported(
        "{}: {}.dtype={} differs from q.dtype={}; mixed types are not offered; cast one of them",
        op_name(args.op), tensor_name(id), dtype_name(dtype), dtype_name(q_dtype));
  }
  return invalid("{}: {}.dtype={}, need {}; cast it", op_name(args.op), tensor_name(id),
                 dtype_name(dtype), need);
}

Status check_dtype(const Args& args, TensorId id) {
  const int32_t dtype = args.tensor[id].dtype, q_dtype = args.tensor[kQ].dtype;
  bool legal = false;
  std::string need;
  switch (kTensors[id].type) {
    case TypeRule::kAsQ:
      legal = dtype == q_dtype;
      need = fmt::format("{} as q", dtype_name(q_dtype));
      break;
    case TypeRule::kAsKey:
    case TypeRule::kAsV:
      return check_dtype_of_keys(args, id);
    case TypeRule::kAsQOrF32:
      legal = dtype == q_dtype || dtype == FA3_F32;
      need = fmt::format("{} as q{}", dtype_name(q_dtype), q_dtype == FA3_F32 ? "" : ", or f32");
      if (!is_8_bit(q_dtype)) break;
      legal = dtype == FA3_F32 || dtype == FA3_F16 || dtype == FA3_BF16;
      need = fmt::format("f32, f16 or bf16 with q of {}", dtype_name(q_dtype));
      break;
    case TypeRule::kF32:
      legal = dtype == FA3_F32;
      need = "f32";
      break;
    case TypeRule::kI32:
      legal = dtype == FA3_I32;
      need = "i32";
      break;
    case TypeRule::kFloat:
      legal = dtype == FA3_F32 || dtype == FA3_F16 || dtype == FA3_BF16;
      need = "f32, f16 or bf16";
      break;
    case TypeRule::kCode:
      legal = is_8_bit(dtype);
      need = "f8_e4m3 or i8";
      break;
    case TypeRule::kE4m3:
      legal = dtype == FA3_F8_E4M3;
      need = "f8_e4m3";
      break;
    case TypeRule::kMask:
      legal = dtype == FA3_BOOL || dtype == FA3_F32 || (dtype == q_dtype && !is_8_bit(q_dtype));
      need = fmt::format("bool, f32{}", is_8_bit(q_dtype) || q_dtype == FA3_F32
                                            ? ""
                                            : fmt::format(", or {} as q", dtype_name(q_dtype)));
      break;
    case TypeRule::kMaskGrad:
      legal = dtype == FA3_F32 || dtype == args.tensor[kAttnMask].dtype;
      need = "f32 or the type of attn_mask";
      break;
    case TypeRule::kSink:
      legal = dtype == FA3_F32 || dtype == FA3_F16 || dtype == FA3_BF16 ||
              (dtype == q_dtype && q_dtype == FA3_F64);
      need = "f32, f16 or bf16";
      break;
    case TypeRule::kSinkGrad:
      legal = dtype == FA3_F32 || dtype == args.tensor[kSinks].dtype;
      need = "f32 or the type of sinks";
      break;
  }
  if (legal) return {};
  return invalid("{}: {}.dtype={}, need {}; cast it", op_name(args.op), tensor_name(id),
                 dtype_name(dtype), need);
}

}  // namespace

Status check_dtypes(const Args& args) {
  if (is_attention(args.op)) FA3_RETURN_IF_ERROR(check_dtype_of_q(args));
  for (const TensorRow& row : kTensors) {
    if (role_of(args.op, row.id) != Role::kNone && args.tensor[row.id].rank != 0)
      FA3_RETURN_IF_ERROR(check_dtype(args, row.id));
  }
  return {};
}

}  // namespace fa3
