// SPDX-License-Identifier: BSD-3-Clause
// prepare.cpp — the kernel of a plan, from wherever it is to be had.
#include <string>
#include <utility>

#include "api/context.h"
#include "backend/launch_fwd_sm90.h"
#include "backend/run.h"
#include "plan/fwd_kernels.h"

// A pack has the head dims of the table; of others a machine without a compiler has the row's own,
// which computes them as well.
fa3::Status fa3_context::prepare(fa3::Plan& plan, fa3::StreamRef on) {
  if (!has_machine() || fa3::nothing_to_launch(plan.problem)) return {};
  FA3_TRY(fa3::Machine* const opened, machine());
  {
    const std::lock_guard lock(machine_mutex_);
    if (missing_kernels_.count(plan.fwd.kernel) != 0) fa3::widen(plan.fwd);
  }
  const fa3::Program program = fa3::fwd_program(plan.fwd);
  fa3::Status status = opened->prepare(program, on);
  if (status.code != FA3_JIT_FAILED || jit().nvrtc().ok() || jit().get(program).ok()) return status;

  const std::string name = fa3::fwd_name(plan.fwd);
  fa3::FwdSm90Plan wide = plan.fwd;
  if (fa3::widen(wide) && opened->prepare(fa3::fwd_program(wide), on).ok()) {
    logger.log(
        FA3_LOG_WARNING,
        "forward: kernel {} is in no cache and no pack, and nothing compiles here; the one of "
        "head dims {} and {} takes its place, which is slower; add {} with `fa3 jit --pack`",
        name, wide.config.head_dim_qk, wide.config.head_dim_v, name);
    const std::lock_guard lock(machine_mutex_);
    missing_kernels_.insert(plan.fwd.kernel);
    plan.fwd = std::move(wide);
    return {};
  }
  status.message += fmt::format(
      "; the kernel's name is {}: make a pack that has it where NVRTC is, with `fa3 jit --pack "
      "FILE "
      "--programs {}`, and name that in FA3_KERNEL_PACK",
      name, name);
  return status;
}
