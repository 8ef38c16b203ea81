// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — plans as handles, and what they say: fa3_plan_*, fa3_supported, fa3_explain.
#include "plan/plan.h"

#include <cstring>
#include <utility>

#include "api/args.h"
#include "api/boundary.h"
#include "api/buffers.h"
#include "api/context.h"
#include "api/dims.h"
#include "api/problem.h"
#include "plan/explain.h"

namespace fa3 {
namespace {

Result<fa3_plan> plan_of(fa3_context* context, fa3_op op, const void* c_args) {
  FA3_RETURN_IF_ERROR(check_call(op_name(op), context, nullptr));
  FA3_TRY(const Args args, read_args(op, c_args));
  FA3_TRY(const Problem problem, make_problem(args));
  FA3_TRY(Plan plan, context->backend().plan(problem));
  return fa3_plan{context, std::move(plan), args};
}

Status create_plan(fa3_context* context, fa3_op op, const void* args, fa3_plan** handle) {
  if (handle == nullptr)
    return invalid("{}: the place for the plan is NULL; pass its address", op_name(op));
  *handle = nullptr;
  FA3_TRY(fa3_plan made, plan_of(context, op, args));
  FA3_TRY(made.plan, context->backend().prepare(std::move(made.plan), StreamRef{}));
  context->logger.log(FA3_LOG_DEBUG, "{}: {}; workspace {} bytes", op_name(op), made.plan.why,
                      made.plan.workspace_bytes);
  *handle = new fa3_plan(std::move(made));
  return {};
}

Status run_plan(const fa3_plan* handle, const void* c_args, void* workspace, size_t workspace_bytes,
                void* stream) {
  if (handle == nullptr)
    return invalid("run: the plan is NULL; make one with fa3_plan_forward, for example");
  const auto& [context, plan, planned] = *handle;
  FA3_RETURN_IF_ERROR(check_call("run", context, stream));
  FA3_TRY(const Args args, read_args(plan.problem.op, c_args));
  if (!same_shapes(args, planned)) {  // strides of a dimension of 1 do not change the problem
    FA3_TRY(const Problem problem, make_problem(args));
    if (const auto difference = first_difference(plan.problem, problem)) {
      return invalid(
          "{}: {}={} differs from the plan's {}; run a plan with the arguments that it was made "
          "for, or make a new one",
          op_name(problem.op), difference->field, difference->b, difference->a);
    }
  }
  Backend& backend = context->backend();
  FA3_TRY(const Buffers buffers, make_buffers(args, plan.problem, backend.on_host()));
  FA3_RETURN_IF_ERROR(check_workspace(args, workspace, workspace_bytes, plan.workspace_bytes));
  FA3_RETURN_IF_ERROR(backend.check(plan, buffers, stream));
  return backend.run(plan, buffers, static_cast<std::byte*>(workspace), stream);
}

Status v_image_to(const fa3_plan* handle, fa3_tensor* image, int32_t* layout) {
  if (handle == nullptr) return invalid("v_image: the plan is NULL; make one first");
  if (image == nullptr || layout == nullptr)
    return invalid("v_image: the place for the {} is NULL; pass its address",
                   image == nullptr ? "image" : "layout");
  *image = fa3_tensor{};
  *layout = FA3_V_IMAGE_NONE;
  const Problem& p = handle->plan.problem;
  const ImageTile tile = image_of(handle->plan);
  if (tile.keys == 0) return {};
  const TensorId id = p.op == FA3_OP_QUANTIZE ? kImage : kVImage;
  fa3_tensor given{};
  given.rank = p.axis_of(id).varlen ? 4 : 5;
  given.shape[given.rank - 2] = tile.keys, given.shape[given.rank - 1] = tile.columns;
  const Dims dims = expected_dims(p, id, given);
  *image = fa3_dense(nullptr, FA3_F8_E4M3, dims.rank, dims.extent);
  *layout = FA3_V_IMAGE_SM90;
  return {};
}

Status explain_to(fa3_context* context, fa3_op op, const void* args, char* text, size_t capacity,
                  size_t* needed) {
  if (capacity > 0 && text == nullptr) {
    return invalid(
        "explain: text is NULL with capacity={}; pass a buffer, or capacity 0 for the size",
        capacity);
  }
  if (capacity > 0) text[0] = '\0';
  if (needed != nullptr) *needed = 0;
  FA3_TRY(fa3_plan made, plan_of(context, op, args));
  Backend& backend = context->backend();
  const std::string json = backend.explain(backend.settled(std::move(made.plan)));
  if (needed != nullptr) *needed = json.size() + 1;
  if (capacity == 0) return {};
  if (capacity <= json.size()) {
    return invalid(
        "explain: capacity={} is too small, need {} bytes; call with capacity 0 for the size",
        capacity, json.size() + 1);
  }
  std::memcpy(text, json.c_str(), json.size() + 1);
  return {};
}

}  // namespace
}  // namespace fa3

fa3_status fa3_plan_forward(fa3_context* context, const fa3_forward_args* args, fa3_plan** plan) {
  return FA3_BOUNDARY({ return fa3::create_plan(context, FA3_OP_FORWARD, args, plan); });
}

fa3_status fa3_plan_backward(fa3_context* context, const fa3_backward_args* args, fa3_plan** plan) {
  return FA3_BOUNDARY({ return fa3::create_plan(context, FA3_OP_BACKWARD, args, plan); });
}

fa3_status fa3_plan_quantize(fa3_context* context, const fa3_quantize_args* args, fa3_plan** plan) {
  return FA3_BOUNDARY({ return fa3::create_plan(context, FA3_OP_QUANTIZE, args, plan); });
}

fa3_status fa3_plan_combine(fa3_context* context, const fa3_combine_args* args, fa3_plan** plan) {
  return FA3_BOUNDARY({ return fa3::create_plan(context, FA3_OP_COMBINE, args, plan); });
}

void fa3_plan_destroy(fa3_plan* plan) { delete plan; }

size_t fa3_plan_workspace_bytes(const fa3_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes;
}

fa3_status fa3_plan_v_image(const fa3_plan* plan, fa3_tensor* image, int32_t* layout) {
  return FA3_BOUNDARY({ return fa3::v_image_to(plan, image, layout); });
}

fa3_status fa3_plan_run(const fa3_plan* plan, const void* args, void* workspace,
                        size_t workspace_bytes, void* stream) {
  return FA3_BOUNDARY({ return fa3::run_plan(plan, args, workspace, workspace_bytes, stream); });
}

fa3_status fa3_supported(fa3_context* context, fa3_op op, const void* args, const char** reason) {
  if (reason != nullptr) *reason = "";
  const fa3_status status = FA3_BOUNDARY({
    FA3_TRY(fa3_plan made, fa3::plan_of(context, op, args));
    const char* const why = fa3::keep_text(fa3::Text::kReason, std::move(made.plan.why));
    if (reason != nullptr) *reason = why;
    return {};
  });
  if (reason != nullptr && status != FA3_OK) *reason = fa3_last_error();
  return status;
}

fa3_status fa3_explain(fa3_context* context, fa3_op op, const void* args, char* text,
                       size_t capacity, size_t* needed) {
  return FA3_BOUNDARY({ return fa3::explain_to(context, op, args, text, capacity, needed); });
}
