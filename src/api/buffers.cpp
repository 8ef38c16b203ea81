// SPDX-License-Identifier: BSD-3-Clause
// buffers.cpp — run-time checks of addresses and of the values that cut sequences.
#include "api/buffers.h"

#include <algorithm>

#include "api/append.h"
#include "api/tensor.h"
#include "core/check_lengths.h"
#include "core/check_scales.h"
#include "core/dtype.h"
#include "core/overlap.h"

namespace fa3 {
namespace {

bool present(const Args& args, TensorId id) {
  return role_of(args.op, id) != Role::kNone && args.tensor[id].rank != 0;
}

Status check_address(const Args& args, TensorId id) {
  const fa3_tensor& t = args.tensor[id];
  const View view = view_of(t);
  if (view.empty()) return {};
  if (t.data == nullptr) {
    return invalid("{}: {}.data is NULL, but the tensor has shape {}; need its address",
                   op_name(args.op), tensor_name(id), tuple_text(t.shape, t.rank));
  }
  if (view.base % view.element != 0) {
    return invalid(
        "{}: {}.data={} is not aligned to its elements; need a multiple of {} bytes ({})",
        op_name(args.op), tensor_name(id), t.data, view.element, dtype_name(t.dtype));
  }
  if (UINTPTR_MAX - view.base < static_cast<uintptr_t>(view.span_bytes())) {
    return invalid(
        "{}: {} at {} spans {} bytes, past the end of the address space; check its strides",
        op_name(args.op), tensor_name(id), t.data, view.span_bytes());
  }
  return {};
}

std::string range_text(const View& view) {
  return fmt::format("{:#x}…{:#x}", view.base, view.base + view.span_bytes());
}

// OK when `written` and `other` have no byte in common.
Status check_disjoint(const char* op, const char* written, const View& a, const char* other,
                      const View& b) {
  switch (overlap(a, b)) {
    case Overlap::kDisjoint:
      return {};
    case Overlap::kShared:
      return invalid(
          "{}: {} (bytes {}) shares elements with {} (bytes {}); need memory of its own for what "
          "is written; interleaved views are legal where no element is in both",
          op, written, range_text(a), other, range_text(b));
    case Overlap::kUnknown:
      break;
  }
  return invalid(
      "{}: {} (bytes {}) cannot be shown to share no element with {} (bytes {}): their strides are "
      "too irregular; use a buffer of its own for {}",
      op, written, range_text(a), other, range_text(b), written);
}

// Engines keep both in one memory, as pages of which a table says whose each is: views of all pages
// then share elements (check_apart.h).
bool may_share(const Args& args, TensorId a, TensorId b) {
  return a == kK && b == kV && present(args, kPageTable);
}

Status check_outputs_disjoint(const Args& args) {
  for (int i = 0; i < kTensorCount; ++i) {
    const TensorId out = TensorId(i);
    if (!present(args, out) || !writes(args, out)) continue;
    for (int j = 0; j < kTensorCount; ++j) {
      const TensorId other = TensorId(j);
      if (!present(args, other)) continue;
      // A pair of written ones meets once.
      if (writes(args, other) && j <= i) continue;
      if (may_share(args, out, other)) continue;
      FA3_RETURN_IF_ERROR(check_disjoint(op_name(args.op), tensor_name(out),
                                         view_of(args.tensor[out]), tensor_name(other),
                                         view_of(args.tensor[other])));
    }
  }
  return {};
}

}  // namespace

Result<Buffers> make_buffers(const Args& args, const Problem& problem, bool on_host) {
  Buffers buffers;
  for (int i = 0; i < kTensorCount; ++i) {
    const TensorId id = TensorId(i);
    if (!present(args, id)) continue;
    FA3_RETURN_IF_ERROR(check_address(args, id));
    buffers.data[i] = args.tensor[i].data;
  }
  FA3_RETURN_IF_ERROR(check_outputs_disjoint(args));
  if (on_host) {
    FA3_RETURN_IF_ERROR(check_lengths(problem, buffers));  // kernels clamp what they read
    FA3_RETURN_IF_ERROR(check_scales(problem, buffers));
  }
  return buffers;
}

Status check_workspace(const Args& args, const void* workspace, size_t given_bytes,
                       size_t needed_bytes) {
  if (needed_bytes == 0) return {};
  if (workspace == nullptr || given_bytes < needed_bytes) {
    return {FA3_WORKSPACE_TOO_SMALL,
            fmt::format("{}: workspace has {} bytes{}, need {}; ask fa3_plan_workspace_bytes",
                        op_name(args.op), given_bytes, workspace == nullptr ? " (NULL)" : "",
                        needed_bytes)};
  }
  View view;
  view.base = reinterpret_cast<uintptr_t>(workspace);
  view.rank = 1;
  view.extent[0] = static_cast<int64_t>(needed_bytes);
  view.stride[0] = 1;
  for (int i = 0; i < kTensorCount; ++i) {
    if (!present(args, TensorId(i))) continue;
    FA3_RETURN_IF_ERROR(check_disjoint(op_name(args.op), "workspace", view,
                                       tensor_name(TensorId(i)), view_of(args.tensor[i])));
  }
  return {};
}

}  // namespace fa3
