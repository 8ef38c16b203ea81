// SPDX-License-Identifier: BSD-3-Clause
// session.cpp — contexts, plans and timed runs through the C interface.
#include "session.h"

#include <chrono>
#include <cstdio>

#include "error.h"
#include "tools/verify/problem.h"

namespace fa3::cli {
namespace {

constexpr fa3_backend kBackends[] = {FA3_BACKEND_AUTO, FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE,
                                     FA3_BACKEND_SIM, FA3_BACKEND_CUDA};

void log_line(void*, fa3_log_level, const char* message) {
  std::fprintf(stderr, "fa3: %s\n", message);
}

}  // namespace

fa3_backend backend_value(const std::string& name) {
  for (const fa3_backend backend : kBackends)
    if (name == verify::backend_name(backend)) return backend;
  fail(kUsage, "--backend: got '{}', need auto, cpu, reference, sim or cuda", name);
}

Session::Session(const std::string& backend, int64_t threads, bool show_progress)
    : progress_(show_progress) {
  options_.struct_size = sizeof options_;
  options_.backend = backend_value(backend);
  if (options_.backend == FA3_BACKEND_CUDA) options_.device_type = FA3_DEVICE_CUDA;
  options_.num_threads = static_cast<int32_t>(threads);
  options_.progress = &Progress::callback;
  options_.progress_user = &progress_;
  options_.log = &log_line;
  fa3_context* context = nullptr;
  check_status(fa3_context_create(&options_, &context));
  context_.reset(context);
}

void Session::prefer_gpu(const std::vector<Question>& problems) {
  if (options_.backend != FA3_BACKEND_AUTO) return;
  fa3_context_options options = options_;
  options.device_type = FA3_DEVICE_CUDA;
  fa3_context* context = nullptr;
  if (fa3_context_create(&options, &context) != FA3_OK) return;
  Context opened(context);
  // Plans rather than fa3_supported: a kernel that cannot be compiled is a reason as well.
  for (const Question& problem : problems) {
    fa3_plan* plan = nullptr;
    fa3_status status = FA3_OK;
    if (problem.op == FA3_OP_FORWARD)
      status = fa3_plan_forward(context, static_cast<const fa3_forward_args*>(problem.args), &plan);
    else if (problem.op == FA3_OP_BACKWARD)
      status =
          fa3_plan_backward(context, static_cast<const fa3_backward_args*>(problem.args), &plan);
    else
      status =
          fa3_plan_quantize(context, static_cast<const fa3_quantize_args*>(problem.args), &plan);
    if (status != FA3_OK) {
      gpu_declined_ = fa3_last_error();
      return;
    }
    fa3_plan_destroy(plan);
  }
  options_ = options;
  context_ = std::move(opened);
}

const std::shared_ptr<verify::Gpu>& Session::gpu() {
  if (!gpu_) gpu_ = std::make_shared<verify::Gpu>(0);
  return gpu_;
}

fa3_device_info Session::device() const {
  fa3_device_info info = {};
  info.struct_size = sizeof info;
  check_status(fa3_get_device_info(context(), &info));
  return info;
}

Prepared Session::with_workspace(fa3_plan* plan) {
  Prepared prepared;
  prepared.plan.reset(plan);
  prepared.workspace_bytes = fa3_plan_workspace_bytes(plan);
  // Uninitialised by intent: its content does not matter and touching it would cost memory.
  if (on_gpu()) {
    const auto release = [gpu = gpu()](void* memory) { gpu->release(memory); };
    prepared.workspace = {gpu()->allocate(prepared.workspace_bytes), release};
  } else {
    prepared.workspace = std::shared_ptr<char[]>(new char[prepared.workspace_bytes]);
  }
  return prepared;
}

Prepared Session::prepare(const fa3_forward_args& args) {
  fa3_plan* plan = nullptr;
  check_status(fa3_plan_forward(context(), &args, &plan));
  return with_workspace(plan);
}

Prepared Session::prepare(const fa3_backward_args& args) {
  fa3_plan* plan = nullptr;
  check_status(fa3_plan_backward(context(), &args, &plan));
  return with_workspace(plan);
}

Prepared Session::prepare(const fa3_quantize_args& args) {
  fa3_plan* plan = nullptr;
  check_status(fa3_plan_quantize(context(), &args, &plan));
  return with_workspace(plan);
}

void Session::download(Prepared& prepared) {
  if (prepared.device) prepared.device->fetch_outputs();
}

double Session::run_plan(const Prepared& prepared, const void* args, const char* label,
                         int64_t calls) {
  using Clock = std::chrono::steady_clock;
  void* const stream = on_gpu() ? gpu()->stream() : nullptr;
  if (prepared.device) args = prepared.device->call_args();
  fa3_status status = FA3_OK;
  const auto submit = [&] {
    for (int64_t i = 0; i < calls && status == FA3_OK; ++i)
      status = fa3_plan_run(prepared.plan.get(), args, prepared.workspace.get(),
                            prepared.workspace_bytes, stream);
  };
  progress_.start(label);
  double elapsed_s = 0;
  if (on_gpu()) {
    elapsed_s = 1e-3 * gpu()->time_ms(submit);
  } else {
    const Clock::time_point start = Clock::now();
    submit();
    elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  progress_.finish();
  check_status(status);
  return elapsed_s / static_cast<double>(calls);
}

void Session::require_op(fa3_op op, const void* args) {
  const char* reason = nullptr;
  const fa3_status status = fa3_supported(context(), op, args, &reason);
  if (status != FA3_OK) throw CliError(code_of(status), reason);
}

std::string Session::explain_op(fa3_op op, const void* args) {
  size_t needed = 0;
  check_status(fa3_explain(context(), op, args, nullptr, 0, &needed));
  std::string text(needed, '\0');
  check_status(fa3_explain(context(), op, args, text.data(), text.size(), &needed));
  text.resize(needed - 1);  // without the final NUL
  return text;
}

}  // namespace fa3::cli
