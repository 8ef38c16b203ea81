// SPDX-License-Identifier: BSD-3-Clause
// backend.cpp — registers the caller's tensors with the simulator for the length of a run.
#include "backend/sim/backend.h"

#include <algorithm>
#include <vector>

#include "backend/launch/launch.h"
#include "core/dtype.h"
#include "core/span.h"
#include "plan/explain.h"
#include "plan/sm90/roofline.h"

namespace fa3::sim {
namespace {

struct Extent {
  uintptr_t begin, end;
  std::string name;
  bool read_only = false;
};

// Memory from a tensor's first element to its last, gaps included.
Extent extent_of(const Problem& p, const Buffers& x, TensorId id) {
  const auto begin = reinterpret_cast<uintptr_t>(x.data[id]);
  const int64_t bytes = begin == 0 ? 0 : span_of(p, id) * dtype_bytes(p.layout[id].dtype);
  if (bytes == 0) return {0, 0, tensor_name(id)};
  return {begin, begin + static_cast<uintptr_t>(bytes), tensor_name(id)};
}

Extent bytes_of(const void* data, int64_t bytes, const char* name) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin == 0 ? 0 : begin + static_cast<uintptr_t>(bytes), name};
}

// Of workspace and all tensors; those that overlap (views of one allocation) merged.
std::vector<Extent> extents_of(const Plan& plan, const Buffers& x, std::byte* workspace) {
  const Problem& p = plan.problem;
  std::vector<Extent> all = {
      bytes_of(workspace, static_cast<int64_t>(kernel_bytes(plan)), "workspace")};
  for (const TensorRow& row : kTensors) {
    if (role_of(p.op, row.id) == Role::kNone) continue;
    all.push_back(has_layout(row.id)
                      ? extent_of(p, x, row.id)
                      : bytes_of(x.data[row.id], elements_of(p, row.id) * int64_t{sizeof(int32_t)},
                                 row.name));
    all.back().read_only = !p.writes(row.id);
  }
  std::erase_if(all, [](const Extent& e) { return e.begin == e.end; });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<Extent> merged;
  for (Extent& extent : all) {
    if (merged.empty() || merged.back().end <= extent.begin) {
      merged.push_back(std::move(extent));
      continue;
    }
    merged.back().end = std::max(merged.back().end, extent.end);
    merged.back().read_only = merged.back().read_only && extent.read_only;
    merged.back().name += "+" + extent.name;
  }
  return merged;
}

// Registers memory for the life of this object.
class Registered {
 public:
  Registered(SimRuntime& runtime, const std::vector<Extent>& extents) : runtime_(runtime) {
    bases_.reserve(extents.size());
    try {
      for (const Extent& extent : extents) {
        void* const base = reinterpret_cast<void*>(extent.begin);
        runtime.add(base, extent.end - extent.begin, extent.name.c_str(), extent.read_only);
        bases_.push_back(base);
      }
    } catch (...) {
      remove_all();
      throw;
    }
  }
  ~Registered() { remove_all(); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  void remove_all() {
    for (void* base : bases_) runtime_.remove(base);
  }

  SimRuntime& runtime_;
  std::vector<void*> bases_;
};

}  // namespace

std::string SimBackend::why() const {
  return fmt::format("backend sim (sm{}): the context's options name it", device().sm);
}

Result<KernelPlan> SimBackend::kernels(const Problem& problem) const {
  return plan_ahead(problem, device());
}

// The simulator's plan models that of an H200.
std::string SimBackend::explain(const Plan& plan) const {
  const auto on_gpu = plan_kernels(plan.problem, sm90::h200());
  return fa3::explain(plan, on_gpu.ok() ? on_gpu.value().steps : plan.steps);
}

Result<SimRuntime*> SimBackend::runtime() {
  const auto& opened = runtime_.get([this] { return SimRuntime::open(settings_); });
  if (!opened.ok()) return opened.status();
  return opened.value().get();
}

Result<Plan> SimBackend::prepare(Plan plan, StreamRef) {
  if (has_no_output_rows(plan.problem)) return plan;
  FA3_TRY(SimRuntime* const simulator, runtime());
  for (const KernelStep& step : plan.steps)
    FA3_RETURN_IF_ERROR(simulator->prepare(step.program, {}));
  return plan;
}

Result<WorkspaceLease> SimBackend::workspace(size_t bytes, void*) {
  return workspaces_.borrow(bytes);
}

Status SimBackend::run(const Plan& plan, const Buffers& buffers, std::byte* workspace, void*) {
  if (has_no_output_rows(plan.problem)) return {};
  FA3_TRY(SimRuntime* const simulator, runtime());
  const std::lock_guard lock(mutex_);
  const Registered registered(*simulator, extents_of(plan, buffers, aligned(workspace)));
  return launch(plan, *simulator, {}, buffers, aligned(workspace));
}

}  // namespace fa3::sim
