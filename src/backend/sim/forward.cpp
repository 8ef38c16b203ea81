// SPDX-License-Identifier: BSD-3-Clause
// forward.cpp — registers the caller's tensors with the simulator for the length of a run.
#include "backend/sim/forward.h"

#include <algorithm>
#include <vector>

#include "backend/launch_fwd_sm90.h"
#include "core/dtype.h"

namespace fa3::sim {
namespace {

struct Extent {
  uintptr_t begin, end;
  std::string name;
};

// Elements from the first to the last that a tensor of `rows` × `heads` × `columns` has.
Extent extent_of(const Problem& p, const Buffers& x, TensorId id, const SeqAxis& axis,
                 int64_t heads, int64_t columns, const char* name) {
  const Layout& layout = p.layout[id];
  const int64_t batch = axis.packed ? 1 : p.batch;
  const int64_t elements = (batch - 1) * layout.batch + (axis.rows - 1) * layout.row +
                           (heads - 1) * layout.head + columns;
  const auto begin = reinterpret_cast<uintptr_t>(x.data[id]);
  if (axis.rows == 0 || batch == 0 || begin == 0) return {0, 0, name};
  return {begin, begin + static_cast<uintptr_t>(elements * dtype_bytes(layout.dtype)), name};
}

Extent bytes_of(const void* data, int64_t bytes, const char* name) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin == 0 ? 0 : begin + static_cast<uintptr_t>(bytes), name};
}

// Of all tensors; those that share memory (views of one allocation) as one.
std::vector<Extent> extents_of(const Plan& plan, const Buffers& x, std::byte* workspace) {
  const Problem& p = plan.problem;
  const int64_t ints = sizeof(int32_t);
  std::vector<Extent> all = {
      extent_of(p, x, kQ, p.q, p.heads_q, p.head_dim_qk, "q"),
      extent_of(p, x, kK, p.kv, p.heads_kv, p.head_dim_qk, "k"),
      extent_of(p, x, kV, p.kv, p.heads_kv, p.head_dim_v, "v"),
      extent_of(p, x, kO, p.q, p.heads_q, p.head_dim_v, "o"),
      extent_of(p, x, kLse, p.q, p.heads_q, 1, "lse"),
      bytes_of(x.data[kCuSeqlensQ], ints * (p.batch + 1), "cu_seqlens_q"),
      bytes_of(x.data[kCuSeqlensKv], ints * (p.batch + 1), "cu_seqlens_kv"),
      bytes_of(x.data[kSequsedQ], ints * p.batch, "seqused_q"),
      bytes_of(x.data[kSequsedKv], ints * p.batch, "seqused_kv"),
      bytes_of(workspace, static_cast<int64_t>(fwd_sm90_workspace_bytes(plan.fwd)), "workspace"),
  };
  std::erase_if(all, [](const Extent& e) { return e.begin == e.end; });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<Extent> merged;
  for (Extent& extent : all) {
    if (merged.empty() || merged.back().end <= extent.begin) {
      merged.push_back(std::move(extent));
      continue;
    }
    merged.back().end = std::max(merged.back().end, extent.end);
    merged.back().name += "+" + extent.name;
  }
  return merged;
}

// Registers memory for the life of this object.
class Registered {
 public:
  Registered(SimMachine& machine, const std::vector<Extent>& extents) : machine_(machine) {
    for (const Extent& extent : extents) {
      void* const base = reinterpret_cast<void*>(extent.begin);
      machine.add(base, extent.end - extent.begin, extent.name.c_str());
      bases_.push_back(base);
    }
  }
  ~Registered() {
    for (void* base : bases_) machine_.remove(base);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  SimMachine& machine_;
  std::vector<void*> bases_;
};

}  // namespace

Status forward(SimMachine& machine, const Plan& plan, const Buffers& buffers,
               std::byte* workspace) {
  const Registered registered(machine, extents_of(plan, buffers, workspace));
  return launch_fwd_sm90(machine, {}, plan.problem, plan.fwd, buffers, workspace);
}

}  // namespace fa3::sim
