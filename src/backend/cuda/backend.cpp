// SPDX-License-Identifier: BSD-3-Clause
// backend.cpp — resolves a plan's kernels (memory, disk, bundle, NVRTC) and runs it on a GPU.
#include "backend/cuda/backend.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "backend/cuda/driver.h"
#include "backend/launch/launch.h"
#include "core/check_lengths.h"
#include "core/check_scales.h"
#include "core/span.h"
#include "core/tuning.h"
#include "plan/explain.h"
#include "plan/sm90/fwd/kernels.h"

namespace fa3::cuda {
namespace {

// The step with the kernel of its row's own head dims; nothing when it has that already.
std::optional<KernelStep> wider_step(const KernelStep& step) {
  return std::visit(
      [&](const auto& kernel) -> std::optional<KernelStep> {
        const auto wide = wider(kernel);
        if (!wide) return std::nullopt;
        return with_kernel(step, *wide);
      },
      step.kernel);
}

bool is_tuned(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const KernelStep& step) {
    return std::visit([](const auto& kernel) { return tuned(kernel); }, step.kernel);
  });
}

// The number of the calling thread, which no other has had.
uint64_t thread_number() {
  static std::atomic<uint64_t> threads{0};
  // In the memory that every thread starts with: its first use allocates nothing.
  __attribute__((tls_model("initial-exec"))) static constinit thread_local uint64_t number = 0;
  if (number == 0) number = ++threads;
  return number;
}

std::string name_of_step(const KernelStep& step) {
  return std::visit([](const auto& kernel) { return name_of(kernel); }, step.kernel);
}

}  // namespace

std::string CudaBackend::why() const {
  return fmt::format("backend cuda (sm{}): the context's device is {}", device().sm, device().name);
}

Result<KernelPlan> CudaBackend::kernels(const Problem& problem) const {
  return plan_kernels(problem, device());
}

std::string CudaBackend::explain(const Plan& plan) const { return fa3::explain(plan, plan.steps); }

Result<CudaRuntime*> CudaBackend::runtime() {
  const auto& opened = runtime_.get([this]() -> Result<std::unique_ptr<CudaRuntime>> {
    FA3_TRY(const Driver* const driver, Driver::system());
    return CudaRuntime::open(*driver, jit_.get(), device().id);
  });
  if (!opened.ok()) return opened.status();
  return opened.value().get();
}

// ---- Kernels ------------------------------------------------------------------------------------

Result<Plan> CudaBackend::prepare(Plan plan, StreamRef on) {
  if (has_no_output_rows(plan.problem)) return plan;
  FA3_TRY(CudaRuntime* const gpu, runtime());
  for (const KernelStep& step : plan.steps) {
    const std::string why = std::visit([](const auto& k) { return declined(k); }, step.kernel);
    if (!why.empty() && first_time(why))
      logger_.log(FA3_LOG_WARNING, "{}: FA3_TUNING names row {}; the table's choice is used",
                  key_of(plan.problem), why);
  }
  if (!is_tuned(plan)) return prepare_steps(std::move(plan), *gpu, on);
  const std::string key = key_of(plan.problem);
  if (!contains(untuned_, key)) {
    Result<Plan> ready = prepare_steps(plan, *gpu, on);
    if (ready.ok() || ready.status().code != FA3_JIT_FAILED || jit_.get().nvrtc().ok() ||
        has_kernels(plan))
      return ready;
    logger_.log(FA3_LOG_WARNING,
                "{}: the kernel that FA3_TUNING asks for is in no cache and no pack, and nothing "
                "compiles here; the table's choice is used",
                key);
    const std::lock_guard lock(mutex_);
    untuned_.insert(key);
  }
  FA3_TRY(plan, by_table(std::move(plan)));
  return prepare_steps(std::move(plan), *gpu, on);
}

Result<Plan> CudaBackend::prepare_steps(Plan plan, CudaRuntime& gpu, StreamRef on) {
  for (KernelStep& step : plan.steps) {
    FA3_TRY(step, prepared(op_name(plan.problem.op), step, gpu, on));
  }
  return plan;
}

bool CudaBackend::has_kernels(const Plan& plan) {
  return std::all_of(plan.steps.begin(), plan.steps.end(),
                     [this](const KernelStep& step) { return jit_.get().get(step.program).ok(); });
}

Result<Plan> CudaBackend::by_table(Plan plan) const {
  DeviceInfo untuned = device();
  untuned.tuning = nullptr;
  FA3_TRY(KernelPlan planned, plan_kernels(plan.problem, untuned));
  return with_kernels(std::move(plan), std::move(planned));
}

bool CudaBackend::contains(const std::set<std::string>& names, const std::string& name) {
  const std::lock_guard lock(mutex_);
  return names.contains(name);
}

bool CudaBackend::first_time(const std::string& warning) {
  const std::lock_guard lock(mutex_);
  return warned_.insert(warning).second;
}

Result<KernelStep> CudaBackend::prepared(const char* op, const KernelStep& step, CudaRuntime& gpu,
                                         StreamRef on) {
  // A row whose own kernel is the missing one has no wider one: only a tuned row did.
  if (contains(missing_, step.program.expression)) {
    if (const std::optional<KernelStep> wide = wider_step(step)) {
      FA3_RETURN_IF_ERROR(gpu.prepare(wide->program, on));
      return *wide;
    }
  }
  Status status = gpu.prepare(step.program, on);
  if (status.ok()) return step;
  Jit& jit = jit_.get();
  if (status.code != FA3_JIT_FAILED || jit.nvrtc().ok() || jit.get(step.program).ok())
    return status;

  const std::string name = name_of_step(step);
  const std::optional<KernelStep> wide = wider_step(step);
  if (wide && gpu.prepare(wide->program, on).ok()) {
    logger_.log(FA3_LOG_WARNING,
                "{}: kernel {} is in no cache and no pack, and nothing compiles here; the one of "
                "head dims {} takes its place, which is slower; add {} with `fa3 jit --pack`",
                op, name, std::visit([](const auto& k) { return head_dims_text(k); }, wide->kernel),
                name);
    const std::lock_guard lock(mutex_);
    missing_.insert(step.program.expression);
    return *wide;
  }
  status.message += fmt::format(
      "; the kernel's name is {}: make a pack that has it where NVRTC is, with `fa3 jit --pack "
      "FILE --programs {}`, and name that in FA3_KERNEL_PACK",
      name, name);
  return status;
}

Plan CudaBackend::settled(Plan plan) {
  Jit& jit = jit_.get();
  if (jit.nvrtc().ok()) return plan;
  bool missing = false;
  for (KernelStep& step : plan.steps) {
    if (jit.get(step.program).ok()) continue;
    const std::optional<KernelStep> wide = wider_step(step);
    if (wide && jit.get(wide->program).ok())
      step = *wide;
    else
      missing = true;
  }
  if (!missing || !is_tuned(plan)) return plan;
  const Result<Plan> untuned = by_table(plan);
  return untuned.ok() ? settled(untuned.value()) : plan;
}

// ---- Runs ---------------------------------------------------------------------------------------

Status CudaBackend::check(const Plan& plan, const Buffers& buffers, void* stream) {
  FA3_RETURN_IF_ERROR(GpuBackend::check(plan, buffers, stream));
  if (!check_values_) return {};
  FA3_TRY(CudaRuntime* const gpu, runtime());
  const Problem& p = plan.problem;
  Buffers on_host = buffers;
  std::vector<int32_t> copies[kTensorCount];  // or FP32, of scales
  for (const TensorRow& row : kTensors) {
    const bool is_scale = row.form == Form::kScale && !is_output(role_of(p.op, row.id));
    if ((has_layout(row.id) && !is_scale) || buffers.data[row.id] == nullptr) continue;
    const int64_t elements = is_scale ? span_of(p, row.id) : elements_of(p, row.id);
    std::vector<int32_t>& copy = copies[row.id];
    copy.resize(static_cast<size_t>(elements));
    const Status status = gpu->download(copy.data(), buffers.data[row.id],
                                        copy.size() * sizeof(int32_t), StreamRef::of(stream));
    if (!status.ok()) {
      return {status.code,
              fmt::format("{}: FA3_CHECK=1 reads {}: {}; unset FA3_CHECK, or run once without the "
                          "graph",
                          op_name(p.op), row.name, status.message)};
    }
    on_host.data[row.id] = copy.data();
  }
  FA3_RETURN_IF_ERROR(check_lengths(p, on_host));
  return p.op == FA3_OP_FORWARD ? check_scales(p, on_host) : Status();
}

Result<WorkspaceLease> CudaBackend::workspace(size_t bytes, void* stream) {
  if (bytes == 0) return WorkspaceLease();
  FA3_TRY(CudaRuntime* const gpu, runtime());
  if (gpu->captures(StreamRef::of(stream))) {
    return unsupported(
        "cuda: a graph is being captured on the stream, but the context's workspace, of which {} "
        "bytes are needed, may be gone before the graph is; need one of your own: use fa3_plan_run",
        bytes);
  }
  const bool of_thread = stream == kStreamPerThread;
  const StreamKey key(stream, of_thread ? std::this_thread::get_id() : std::thread::id());
  const uint64_t thread = of_thread ? thread_number() : 0;
  KeptWorkspace* kept = nullptr;
  {
    const std::lock_guard lock(mutex_);
    kept = &workspaces_[key];
  }
  std::unique_lock in_use(kept->in_use);
  // Work that another thread left on its own stream may still use what it had: freeing it waits.
  if (kept->bytes < bytes || kept->thread != thread) {
    if (kept->data != nullptr) gpu->release(std::exchange(kept->data, nullptr));
    kept->bytes = 0;
    kept->data = gpu->allocate(bytes, "workspace");
    kept->bytes = bytes;
    kept->thread = thread;
  }
  return WorkspaceLease(static_cast<std::byte*>(kept->data), std::move(in_use));
}

Status CudaBackend::run(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                        void* stream) {
  if (has_no_output_rows(plan.problem)) return {};
  FA3_TRY(CudaRuntime* const gpu, runtime());
  return launch(plan, *gpu, StreamRef::of(stream), buffers, aligned(workspace));
}

}  // namespace fa3::cuda
