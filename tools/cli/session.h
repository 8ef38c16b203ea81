// SPDX-License-Identifier: BSD-3-Clause
// session.h — an fa3 context with the command's progress bar and Ctrl-C, and timed runs on it.
#pragma once

#include <memory>
#include <string>

#include "fa3/fa3.h"
#include "progress.h"

namespace fa3::cli {

fa3_backend backend_value(const std::string& name);  // as --backend takes it

struct PlanDeleter {
  void operator()(fa3_plan* plan) const { fa3_plan_destroy(plan); }
};

// A plan with the workspace that its runs need.
struct Prepared {
  std::unique_ptr<fa3_plan, PlanDeleter> plan;
  std::unique_ptr<char[]> workspace;
  size_t workspace_bytes = 0;
};

class Session {
 public:
  // Throws CliError{kUnsupported} for a backend that is not offered here.
  // Commands keep tensors in host memory; kAnywhere is for those that have none.
  enum class Memory { kHost, kAnywhere };
  Session(const std::string& backend, int64_t threads, bool show_progress,
          Memory memory = Memory::kHost);

  fa3_context* context() const { return context_.get(); }
  fa3_device_info device() const;
  Progress& progress() { return progress_; }

  Prepared prepare(const fa3_forward_args& args);
  Prepared prepare(const fa3_backward_args& args);

  // Runs once and returns the wall time in seconds. `label` names the work in the progress bar.
  template <class Args>
  double run(const Prepared& prepared, const Args& args, const char* label) {
    return run_plan(prepared, &args, label);
  }

  // Throws what making a plan would.
  void require_supported(const fa3_forward_args& args) { require_op(FA3_OP_FORWARD, &args); }
  void require_supported(const fa3_backward_args& args) { require_op(FA3_OP_BACKWARD, &args); }

  // The plan as the library explains it: one JSON object.
  std::string explain(const fa3_forward_args& args) { return explain_op(FA3_OP_FORWARD, &args); }
  std::string explain(const fa3_backward_args& args) { return explain_op(FA3_OP_BACKWARD, &args); }

 private:
  struct ContextDeleter {
    void operator()(fa3_context* context) const { fa3_context_destroy(context); }
  };

  double run_plan(const Prepared& prepared, const void* args, const char* label);
  void require_op(fa3_op op, const void* args);
  std::string explain_op(fa3_op op, const void* args);

  Progress progress_;
  std::unique_ptr<fa3_context, ContextDeleter> context_;
};

}  // namespace fa3::cli
