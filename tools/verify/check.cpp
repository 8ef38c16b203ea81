// SPDX-License-Identifier: BSD-3-Clause
// check.cpp — one problem from description to verdict.
#include "tools/verify/check.h"

#include <fmt/core.h>

#include <exception>
#include <new>
#include <utility>

#include "tools/verify/append.h"
#include "tools/verify/device_call.h"
#include "tools/verify/fields.h"

namespace fa3::verify {
namespace {

fa3_backend backend_of(const fa3_context* context) {
  fa3_device_info info{};
  info.struct_size = sizeof info;
  return fa3_get_device_info(context, &info) == FA3_OK ? fa3_backend(info.backend)
                                                       : FA3_BACKEND_AUTO;
}

// Inputs as they were before the run, and outputs whose guards must survive it.
class Guarded {
 public:
  void input(const char* name, const Tensor& t) {
    if (t.storage) inputs_.push_back({name, t.storage, t.storage->snapshot()});
  }
  void output(const char* name, const Tensor& t) {
    if (t.storage) outputs_.push_back({name, t.storage, {}});
  }
  // "" or what was changed that should not be.
  std::string damage() const {
    for (const Entry& e : inputs_)
      if (e.storage->snapshot() != e.before) return fmt::format("input {} was changed", e.name);
    for (const Entry& e : outputs_)
      if (!e.storage->guards_intact())
        return fmt::format("bytes beside the elements of {} were written", e.name);
    return "";
  }

 private:
  struct Entry {
    const char* name;
    std::shared_ptr<Storage> storage;
    std::vector<std::byte> before;
  };
  std::vector<Entry> inputs_, outputs_;
};

// The tensors of a call with Args.
template <class Args, class Tensors>
Guarded guard(const Args& args, const Tensors& t) {
  Guarded guarded;
  for (const fa3_field& f : fields(op_of<Args>())) {
    const Tensor* const tensor = is_tensor(f) ? t.find(f.name) : nullptr;
    if (tensor == nullptr) continue;
    is_written(args, f) ? guarded.output(f.name, *tensor) : guarded.input(f.name, *tensor);
  }
  return guarded;
}

fa3_status submit(fa3_context* context, const fa3_forward_args& args, void* stream) {
  return fa3_forward(context, &args, stream);
}
fa3_status submit(fa3_context* context, const fa3_backward_args& args, void* stream) {
  return fa3_backward(context, &args, stream);
}
fa3_status submit(fa3_context* context, const fa3_combine_args& args, void* stream) {
  return fa3_combine(context, &args, stream);
}

// The call on tensors of the host; a GPU gets copies, whose guards `damage` is about too.
template <class Args>
fa3_status call(fa3_context* context, const Args& args, std::string* damage) {
  if (backend_of(context) != FA3_BACKEND_CUDA) return submit(context, args, nullptr);
  Gpu gpu(0);
  DeviceCall<Args> device(gpu, args);
  const fa3_status status = submit(context, device.args(), gpu.stream());
  if (status != FA3_OK) return status;
  gpu.synchronize();
  device.fetch_outputs();
  *damage = device.damage();
  return status;
}

// Records the result of a call and what it damaged; true when nothing went wrong.
bool settle(fa3_status status, const Guarded& guarded, Report* report) {
  report->status = status;
  report->error = status == FA3_OK ? guarded.damage() : fa3_last_error();
  return report->error.empty();
}

void append(std::vector<OutputResult> results, Report* report) {
  for (OutputResult& r : results) report->outputs.push_back(std::move(r));
}

void run(const Config& config, fa3_context* context, Report* report) {
  const Tensors t = make_tensors(config);
  std::string damage;
  {
    const fa3_forward_args args = forward_args(config, t);
    const Guarded guarded = guard(args, t);
    if (!settle(call(context, args, &damage), guarded, report)) return;
    report->error = damage;
    append(compare_forward(after_appending(args, t)), report);
    append(compare_appended(config, t), report);
  }
  if (!config.backward) return;
  const fa3_backward_args args = backward_args(config, t);
  const Guarded guarded = guard(args, t);
  if (!settle(call(context, args, &damage), guarded, report)) return;
  if (report->error.empty()) report->error = damage;
  append(compare_backward(args), report);
}

void run(const CombineProblem& problem, fa3_context* context, Report* report) {
  const CombineTensors t = make_combine(problem);
  const fa3_combine_args args = combine_args(problem, t);
  const Guarded guarded = guard(args, t);
  std::string damage;
  if (!settle(call(context, args, &damage), guarded, report)) return;
  report->error = damage;
  append(compare_combine(args), report);
}

template <class Problem>
Report report_of(const Problem& problem, fa3_context* context, const std::string& repeat) {
  Report report;
  try {
    run(problem, context, &report);
  } catch (const std::bad_alloc&) {
    report.status = FA3_OUT_OF_MEMORY;
    report.error = "not enough memory for the problem and its reference; use a smaller problem";
  } catch (const std::exception& e) {
    report.status = FA3_INTERNAL;
    report.error = e.what();
  }
  report.ok = report.error.empty();
  if (!report.error.empty()) report.text = report.error + "\n";
  for (const OutputResult& r : report.outputs) {
    report.ok = report.ok && r.ok;
    report.text += to_text(r) + "\n";
  }
  if (!report.ok) report.text += "repeat: " + repeat + "\n";
  return report;
}

}  // namespace

Config aligned(Config config, fa3_backend backend) {
  constexpr int64_t kTma = 16;
  const bool tma = backend == FA3_BACKEND_CUDA || backend == FA3_BACKEND_SIM;
  if (config.alignment == 0 && tma) config.alignment = kTma;
  return config;
}

Report check(const Config& config, fa3_context* context) {
  const fa3_backend backend = backend_of(context);
  return report_of(aligned(config, backend), context,
                   replay_command(config, backend_name(backend)));
}

Report check(const CombineProblem& problem, fa3_context* context, const std::string& repeat) {
  return report_of(problem, context, repeat);
}

}  // namespace fa3::verify
