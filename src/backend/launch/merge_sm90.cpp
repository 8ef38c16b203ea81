// SPDX-License-Identifier: BSD-3-Clause
// merge_sm90.cpp — arguments of the kernel that merges a caller's parts.
#include "backend/launch/merge_sm90.h"

#include "backend/launch/arguments.h"
#include "core/dtype.h"
#include "device/sm90/merge/args.h"

namespace fa3::sm90 {
namespace {

constexpr uintptr_t kWide = 16;  // bytes of an access

template <class T>
MergeTensor<T> tensor_of(const StepRun& run, TensorId id) {
  const Layout& layout = run.problem.layout[id];
  return {static_cast<T*>(run.buffers.data[id]), layout.part, layout.batch, layout.row,
          layout.head};
}

// Do all rows of the tensor begin at multiples of 16 bytes?
bool is_wide(const StepRun& run, TensorId id) {
  const Layout& layout = run.problem.layout[id];
  const int64_t strides = layout.part | layout.batch | layout.row | layout.head;
  const auto bytes = static_cast<uintptr_t>(strides * dtype_bytes(layout.dtype));
  return (bytes | reinterpret_cast<uintptr_t>(run.buffers.data[id])) % kWide == 0;
}

}  // namespace

Status launch(const MergePlan& plan, const StepRun& run) {
  const Problem& p = run.problem;
  MergeArgs args{};
  args.o_parts = tensor_of<const void>(run, kOParts);
  args.lse_parts = tensor_of<const float>(run, kLseParts);
  args.o = tensor_of<void>(run, kMergedO);
  args.lse = tensor_of<float>(run, kMergedLse);
  args.sinks = sink_args_of(p, run.buffers);
  args.parts = static_cast<i32>(p.parts);
  args.batch = static_cast<i32>(p.batch);
  args.heads = static_cast<i32>(p.heads_q);
  args.head_dim = static_cast<i32>(p.head_dim_v);
  args.pieces = static_cast<u32>(plan.pieces);
  args.row_pieces = static_cast<u32>(plan.row_pieces);
  args.wide = p.head_dim_v % plan.config.lane_columns() == 0 && is_wide(run, kOParts) &&
              is_wide(run, kMergedO);
  return run.launch(args);
}

}  // namespace fa3::sm90
