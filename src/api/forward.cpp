// SPDX-License-Identifier: BSD-3-Clause
// forward.cpp — fa3_forward, fa3_backward, fa3_quantize, fa3_combine: plan and run in one call. The
// map of the library.
#include <utility>

#include "api/args.h"
#include "api/boundary.h"
#include "api/buffers.h"
#include "api/context.h"
#include "api/problem.h"

namespace fa3 {
namespace {

Status plan_and_run(fa3_context* context, fa3_op op, const void* c_args, void* stream) {
  FA3_RETURN_IF_ERROR(check_call(op_name(op), context, stream));
  FA3_TRY(Args args, read_args(op, c_args));
  drop_tensors_without_data(args);

  Backend& backend = context->backend();
  FA3_TRY(const Problem problem, make_problem(args));
  FA3_TRY(Plan planned, backend.plan(problem));
  FA3_TRY(const Buffers buffers, make_buffers(args, problem, backend.on_host()));
  FA3_RETURN_IF_ERROR(backend.check(planned, buffers, stream));
  FA3_TRY(const Plan plan, backend.prepare(std::move(planned), StreamRef::of(stream)));
  FA3_TRY(const WorkspaceLease workspace, backend.workspace(plan.workspace_bytes, stream));
  return backend.run(plan, buffers, workspace.data(), stream);
}

}  // namespace
}  // namespace fa3

fa3_status fa3_forward(fa3_context* context, const fa3_forward_args* args, void* stream) {
  return FA3_BOUNDARY({ return fa3::plan_and_run(context, FA3_OP_FORWARD, args, stream); });
}

fa3_status fa3_backward(fa3_context* context, const fa3_backward_args* args, void* stream) {
  return FA3_BOUNDARY({ return fa3::plan_and_run(context, FA3_OP_BACKWARD, args, stream); });
}

fa3_status fa3_quantize(fa3_context* context, const fa3_quantize_args* args, void* stream) {
  return FA3_BOUNDARY({ return fa3::plan_and_run(context, FA3_OP_QUANTIZE, args, stream); });
}

fa3_status fa3_combine(fa3_context* context, const fa3_combine_args* args, void* stream) {
  return FA3_BOUNDARY({ return fa3::plan_and_run(context, FA3_OP_COMBINE, args, stream); });
}
