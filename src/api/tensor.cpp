// SPDX-License-Identifier: BSD-3-Clause
// tensor.cpp — checks of one tensor by itself.
#include "api/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "api/append.h"
#include "core/dtype.h"

namespace fa3 {
namespace {

// Bytes of all elements fit 63 bits. Zero extents count as 1: the rest of a shape is held to the
// same limit, whether there are elements or not.
bool elements_fit(const fa3_tensor& t) {
  int64_t bytes = dtype_bytes(t.dtype);
  for (int d = 0; d < t.rank; ++d) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(t.shape[d], 1), &bytes)) return false;
  }
  return true;
}

// Bytes from the first element to past the last fit 63 bits.
bool span_fits(const fa3_tensor& t) {
  const auto stride = strides_of(t);
  int64_t span = 1;  // elements
  for (int d = 0; d < t.rank; ++d) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(t.shape[d] - 1, stride[d], &reach)) return false;
    if (__builtin_add_overflow(span, reach, &span)) return false;
  }
  return !__builtin_mul_overflow(span, dtype_bytes(t.dtype), &span);
}

Status too_large(const char* op, const char* name, const fa3_tensor& t) {
  return invalid(
      "{}: {} with shape {} and stride {} of {} spans more than 2^63 − 1 bytes; need sizes that "
      "fit; check them for overflow",
      op, name, tuple_text(t.shape, t.rank), tuple_text(t.stride, t.rank), dtype_name(t.dtype));
}

// The last stride is 1; of a mask or of scales also 0, one element expanded; LSE that are merged
// have any.
struct LastStride {
  int64_t least = 1, most = 1;
};
LastStride last_stride_of(TensorId id) {
  if (id == kAttnMask || id == kQScale || id == kKScale || id == kVScale) return {0, 1};
  if (id == kLseParts || id == kMergedLse) return {0, INT64_MAX};
  return {};
}

// Strides of a tensor of more than one element. Where its extent is 1 a stride may be anything.
// least, most: of the last stride.
Status check_strides(const char* op, const char* name, const fa3_tensor& t, bool output,
                     const LastStride& allowed) {
  if (std::all_of(t.stride, t.stride + t.rank, [](int64_t s) { return s == 0; })) {
    return invalid(
        "{}: {} with shape {} has stride {}, need its strides in elements, the last 1; make a "
        "dense tensor with fa3_dense (in C++ fa3::tensor), and copy one that is expanded in every "
        "dimension",
        op, name, tuple_text(t.shape, t.rank), tuple_text(t.stride, t.rank));
  }
  const int last = t.rank - 1;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 1) continue;
    if (t.stride[d] < 0) {
      return invalid("{}: {}.stride[{}]={} is negative; need ≥ 0; pass a view that runs forward",
                     op, name, d, t.stride[d]);
    }
    if (d == last && (t.stride[d] < allowed.least || t.stride[d] > allowed.most)) {
      return invalid(
          "{}: {}.stride[{}]={} with extent {}: the last dimension is not contiguous; need stride "
          "1; copy it into a contiguous tensor",
          op, name, d, t.stride[d], t.shape[d]);
    }
    if (output && t.stride[d] == 0) {
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
  const bool output = writes(args, id);
  if (t.rank < 0 || t.rank > FA3_MAX_RANK) {
    return invalid(
        "{}: {}.rank={}, need 0…{}; set it to the number of dimensions, or 0 when absent", op, name,
        t.rank, FA3_MAX_RANK);
  }
  if (t.dtype == FA3_F8_E5M2) {
    return unsupported("{}: {}.dtype={} is reserved for a later release; cast to f8_e4m3", op, name,
                       dtype_name(t.dtype));
  }
  if (dtype_bytes(t.dtype) == 0) {
    return invalid("{}: {}.dtype={} is no fa3_dtype; set one that fa3.h lists", op, name, t.dtype);
  }
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0) {
      return invalid("{}: {}.shape[{}]={} is negative; need ≥ 0", op, name, d, t.shape[d]);
    }
  }
  if (!elements_fit(t)) return too_large(op, name, t);
  const auto elements =
      std::accumulate(t.shape, t.shape + t.rank, int64_t{1}, std::multiplies<int64_t>());
  if (elements == 0) return {};
  if (elements > 1) FA3_RETURN_IF_ERROR(check_strides(op, name, t, output, last_stride_of(id)));
  if (!span_fits(t)) return too_large(op, name, t);
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
  if (std::count(t.shape, t.shape + t.rank, 0) != 0) return stride;
  for (int d = 0; d < t.rank; ++d) stride[d] = t.shape[d] == 1 ? 0 : t.stride[d];
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
    view.stride[d] = stride[d] * view.element;
  }
  return view;
}

std::string tuple_text(const int64_t* values, int rank) {
  return fmt::format("({})", fmt::join(values, values + rank, ", "));
}

}  // namespace fa3
