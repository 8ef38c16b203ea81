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

Prepared with_workspace(fa3_plan* plan) {
  Prepared prepared;
  prepared.plan.reset(plan);
  prepared.workspace_bytes = fa3_plan_workspace_bytes(plan);
  // Uninitialised by intent: its content does not matter and touching it would cost memory.
  prepared.workspace.reset(new char[prepared.workspace_bytes]);
  return prepared;
}

void log_line(void*, fa3_log_level, const char* message) {
  std::fprintf(stderr, "fa3: %s\n", message);
}

}  // namespace

fa3_backend backend_value(const std::string& name) {
  for (const fa3_backend backend : kBackends)
    if (name == verify::backend_name(backend)) return backend;
  fail(kUsage, "--backend: got '{}', need auto, cpu, reference, sim or cuda", name);
}

Session::Session(const std::string& backend, int64_t threads, bool show_progress, Memory memory)
    : progress_(show_progress) {
  fa3_context_options options = {};
  options.struct_size = sizeof options;
  options.backend = backend_value(backend);
  if (options.backend == FA3_BACKEND_CUDA) options.device_type = FA3_DEVICE_CUDA;
  options.num_threads = static_cast<int32_t>(threads);
  options.progress = &Progress::callback;
  options.progress_user = &progress_;
  options.log = &log_line;
  fa3_context* context = nullptr;
  check_status(fa3_context_create(&options, &context));
  context_.reset(context);
  if (memory == Memory::kHost && options.device_type == FA3_DEVICE_CUDA) {
    fail(kUnsupported,
         "--backend: cuda: this command keeps its tensors in host memory, which a GPU does not "
         "read; use cpu or sim, or call the library with tensors in GPU memory");
  }
}

fa3_device_info Session::device() const {
  fa3_device_info info = {};
  info.struct_size = sizeof info;
  check_status(fa3_get_device_info(context(), &info));
  return info;
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

double Session::run_plan(const Prepared& prepared, const void* args, const char* label) {
  using Clock = std::chrono::steady_clock;
  progress_.start(label);
  const Clock::time_point start = Clock::now();
  const fa3_status status = fa3_plan_run(prepared.plan.get(), args, prepared.workspace.get(),
                                         prepared.workspace_bytes, nullptr);
  const double elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
  progress_.finish();
  check_status(status);
  return elapsed_s;
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
  text.resize(needed - 1);  // less the final NUL
  return text;
}

}  // namespace fa3::cli
