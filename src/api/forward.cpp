// SPDX-License-Identifier: BSD-3-Clause
// forward.cpp — fa3_forward and fa3_backward: plan and run in one call. The map of the library.
#include "api/args.h"
#include "api/boundary.h"
#include "api/buffers.h"
#include "api/context.h"
#include "api/problem.h"
#include "plan/plan.h"

namespace fa3 {
namespace {

Status attend(fa3_context* context, fa3_op op, const void* c_args, void* stream) {
  FA3_RETURN_IF_ERROR(check_call(op_name(op), context, stream));
  FA3_TRY(Args args, read_args(op, c_args));
  drop_tensors_without_data(args);

  FA3_TRY(const Problem problem, make_problem(args));
  FA3_TRY(Plan plan, make_plan(problem, context->device));
  const bool on_host = context->device.type == FA3_DEVICE_CPU;
  FA3_TRY(const Buffers buffers, make_buffers(args, problem, on_host));
  FA3_RETURN_IF_ERROR(context->check_buffers(plan, buffers, stream));
  if (!on_host) {
    FA3_RETURN_IF_ERROR(context->prepare(plan, StreamRef::of(stream)));
    FA3_TRY(std::byte* const workspace, context->gpu_workspace(stream, plan.workspace_bytes));
    return context->run(plan, buffers, workspace, stream);
  }
  const WorkspaceCache::Lease workspace = context->workspace.borrow(plan.workspace_bytes);
  return context->run(plan, buffers, workspace.data(), nullptr);
}

}  // namespace
}  // namespace fa3

fa3_status fa3_forward(fa3_context* context, const fa3_forward_args* args, void* stream) {
  return FA3_BOUNDARY({ return fa3::attend(context, FA3_OP_FORWARD, args, stream); });
}

fa3_status fa3_backward(fa3_context* context, const fa3_backward_args* args, void* stream) {
  return FA3_BOUNDARY({ return fa3::attend(context, FA3_OP_BACKWARD, args, stream); });
}
