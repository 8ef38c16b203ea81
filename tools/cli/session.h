// SPDX-License-Identifier: BSD-3-Clause
// session.h — an fa3 context with the command's progress bar and Ctrl-C, and timed runs on it. On a
// GPU the command's tensors, which are in host memory, are copied there and back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "progress.h"
#include "tools/verify/device_call.h"
#include "tools/verify/gpu.h"

namespace fa3::cli {

fa3_backend backend_value(const std::string& name);  // as --backend takes it

struct PlanDeleter {
  void operator()(fa3_plan* plan) const { fa3_plan_destroy(plan); }
};

// A plan with the workspace that its runs need, and on a GPU the tensors there.
struct Prepared {
  std::unique_ptr<fa3_plan, PlanDeleter> plan;
  std::shared_ptr<void> workspace;
  size_t workspace_bytes = 0;
  std::shared_ptr<verify::DeviceTensors> device;
};

// A problem to ask a backend about.
struct Question {
  Question(const fa3_forward_args& args) : op(FA3_OP_FORWARD), args(&args) {}
  Question(const fa3_backward_args& args) : op(FA3_OP_BACKWARD), args(&args) {}
  Question(const fa3_quantize_args& args) : op(FA3_OP_QUANTIZE), args(&args) {}
  Question(const fa3_combine_args& args) : op(FA3_OP_COMBINE), args(&args) {}
  fa3_op op;
  const void* args;
};

class Session {
 public:
  // Throws CliError{kUnsupported} for a backend that is not offered here.
  Session(const std::string& backend, int64_t threads, bool show_progress);

  // With backend auto, which begins on the CPU: moves to the GPU when a Hopper GPU is here and has
  // kernels for all of these problems. Before the first is prepared.
  void prefer_gpu(const std::vector<Question>& problems);

  bool on_gpu() const { return options_.device_type == FA3_DEVICE_CUDA; }
  // Why auto has stayed on the CPU in spite of a Hopper GPU; "" otherwise.
  const std::string& gpu_declined() const { return gpu_declined_; }

  fa3_context* context() const { return context_.get(); }
  fa3_device_info device() const;
  Progress& progress() { return progress_; }

  Prepared prepare(const fa3_forward_args& args);
  Prepared prepare(const fa3_backward_args& args);
  Prepared prepare(const fa3_quantize_args& args);

  // Copies the tensors to where they are computed, and the outputs back: nothing on the CPU.
  template <class Args>
  void upload(Prepared& prepared, const Args& args) {
    if (!on_gpu()) return;
    // Held by other sessions' plans too, which may outlive this one.
    auto* const device = new verify::DeviceCall<Args>(*gpu(), args);
    prepared.device = {device, [gpu = gpu()](verify::DeviceCall<Args>* call) { delete call; }};
  }
  void download(Prepared& prepared);

  // Runs once and returns the wall time in seconds; on a GPU, where copies are not timed, that
  // between two events on the stream, on average over `calls` consecutive runs. `label`
  // names the work in the progress bar.
  template <class Args>
  double run(const Prepared& prepared, const Args& args, const char* label, int64_t calls = 1) {
    return run_plan(prepared, &args, label, calls);
  }

  // Throws what making a plan would.
  void require_supported(const fa3_forward_args& args) { require_op(FA3_OP_FORWARD, &args); }
  void require_supported(const fa3_backward_args& args) { require_op(FA3_OP_BACKWARD, &args); }
  void require_supported(const fa3_combine_args& args) { require_op(FA3_OP_COMBINE, &args); }

  // The plan as the library explains it: one JSON object.
  std::string explain(const fa3_forward_args& args) { return explain_op(FA3_OP_FORWARD, &args); }
  std::string explain(const fa3_backward_args& args) { return explain_op(FA3_OP_BACKWARD, &args); }

 private:
  struct ContextDeleter {
    void operator()(fa3_context* context) const { fa3_context_destroy(context); }
  };
  using Context = std::unique_ptr<fa3_context, ContextDeleter>;

  const std::shared_ptr<verify::Gpu>& gpu();  // opened when the first tensor goes there
  Prepared with_workspace(fa3_plan* plan);
  double run_plan(const Prepared& prepared, const void* args, const char* label, int64_t calls);
  void require_op(fa3_op op, const void* args);
  std::string explain_op(fa3_op op, const void* args);

  Progress progress_;
  fa3_context_options options_ = {};
  std::string gpu_declined_;
  Context context_;
  std::shared_ptr<verify::Gpu> gpu_;
};

}  // namespace fa3::cli
