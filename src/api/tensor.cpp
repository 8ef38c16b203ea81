// SPDX-License-Identifier: BSD-3-Clause
// tensor.cpp — checks of one tensor by itself.
#include "api/tensor.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/dtype.h"

namespace fa3 {
namespace {

bool all_zero_strides(const fa3_tensor& t) {
  return std::all_of(t.stride, t.stride + t.rank, [](int64_t s) { return s == 0; });
}

// Bytes of all elements, and bytes from the first element to past the last, fit 63 bits. Zero
// extents count as 1, so that dense strides of an empty tensor cannot overflow either.
bool sizes_fit(const fa3_tensor& t) {
  int64_t bytes = dtype_bytes(t.dtype);
  int64_t span = 1;  // elements
  for (int d = 0; d < t.rank; ++d) {
    const int64_t extent = std::max<int64_t>(t.shape[d], 1);
    int64_t reach = 0;
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
    if (__builtin_mul_overflow(extent - 1, t.stride[d], &reach)) return false;
    if (__builtin_add_overflow(span, reach, &span)) return false;
  }
  int64_t span_bytes = 0;
  return !__builtin_mul_overflow(span, dtype_bytes(t.dtype), &span_bytes);
}

Status check_strides(const char* op, const char* name, const fa3_tensor& t, bool output) {
  for (int d = 0; d < t.rank; ++d) {
    if (t.stride[d] < 0) {
      return invalid("{}: {}.stride[{}]={} is negative; need ≥ 0; pass a view that runs forward",
                     op, name, d, t.stride[d]);
    }
  }
  if (all_zero_strides(t)) return {};  // dense
  const int last = t.rank - 1;
  if (t.shape[last] > 1 && t.stride[last] != 1) {
    return invalid(
        "{}: {}.stride[{}]={}: the last dimension is not contiguous; need stride 1 (or all strides "
        "0 for dense); copy it into a contiguous tensor",
        op, name, last, t.stride[last]);
  }
  for (int d = 0; output && d < t.rank; ++d) {
    if (t.shape[d] > 1 && t.stride[d] == 0) {
      return invalid(
          "{}: {}.stride[{}]=0 with extent {} would write elements onto each other; need a "
          "positive stride (broadcasting is for inputs only)",
          op, name, d, t.shape[d]);
    }
  }
  return {};
}

}  // namespace

Status check_tensor(const Args& args, TensorId id) {
  const fa3_tensor& t = args.tensor[id];
  const char* op = op_name(args.op);
  const char* name = tensor_name(id);
  const bool output = is_output(role_of(args.op, id));
  if (t.rank < 0 || t.rank > FA3_MAX_RANK) {
    return invalid(
        "{}: {}.rank={}, need 0…{}; set it to the number of dimensions, or 0 when absent", op, name,
        t.rank, FA3_MAX_RANK);
  }
  if (t.dtype == FA3_F8_E4M3 || t.dtype == FA3_F8_E5M2) {
    return unsupported("{}: {}.dtype={} is reserved for a later release; cast to f16 or bf16", op,
                       name, dtype_name(t.dtype));
  }
  if (dtype_bytes(t.dtype) == 0) {
    return invalid("{}: {}.dtype={} is no fa3_dtype; set FA3_F32, FA3_F16, FA3_BF16 or FA3_I32", op,
                   name, t.dtype);
  }
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0) {
      return invalid("{}: {}.shape[{}]={} is negative; need ≥ 0", op, name, d, t.shape[d]);
    }
  }
  FA3_RETURN_IF_ERROR(check_strides(op, name, t, output));
  if (!sizes_fit(t)) {
    return invalid(
        "{}: {} with shape {} and stride {} of {} spans more than 2^63 − 1 bytes; need sizes that "
        "fit; check them for overflow",
        op, name, tuple_text(t.shape, t.rank), tuple_text(t.stride, t.rank), dtype_name(t.dtype));
  }
  if (output && self_overlap(view_of(t)) != Overlap::kDisjoint) {
    return invalid(
        "{}: {} with shape {} and stride {} has elements that share memory, or strides that cannot "
        "be shown not to; need an address of its own for each element of an output",
        op, name, tuple_text(t.shape, t.rank), tuple_text(t.stride, t.rank));
  }
  return {};
}

std::array<int64_t, FA3_MAX_RANK> strides_of(const fa3_tensor& t) {
  std::array<int64_t, FA3_MAX_RANK> stride{};
  const bool dense = all_zero_strides(t);
  int64_t next = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    stride[d] = dense ? next : t.stride[d];
    next *= std::max<int64_t>(t.shape[d], 1);
  }
  return stride;
}

View view_of(const fa3_tensor& t) {
  View view;
  view.base = reinterpret_cast<uintptr_t>(t.data);
  view.element = dtype_bytes(t.dtype);
  view.rank = t.rank;
  const auto stride = strides_of(t);
  for (int d = 0; d < t.rank; ++d) {
    view.extent[d] = t.shape[d];
    // A dimension of one element has no use for its stride, which may be anything, too large for
    // bytes included.
    view.stride[d] = t.shape[d] > 1 ? stride[d] * view.element : 0;
  }
  return view;
}

std::string tuple_text(const int64_t* values, int rank) {
  return fmt::format("({})", fmt::join(values, values + rank, ", "));
}

}  // namespace fa3
