// SPDX-License-Identifier: BSD-3-Clause
// check_buffers.cpp — what kernels ask of addresses, and FA3_CHECK=1: what cuts sequences, read
// from a GPU and checked on the host.
#include <vector>

#include "api/buffers.h"
#include "api/context.h"
#include "backend/cuda/machine.h"
#include "backend/launch_fwd_sm90.h"

fa3::Status fa3_context::check_buffers(const fa3::Plan& plan, const fa3::Buffers& buffers,
                                       void* stream) {
  if (!has_machine()) return {};
  FA3_RETURN_IF_ERROR(fa3::check_addresses(plan.problem, buffers));
  if (!check_values_ || device.backend != FA3_BACKEND_CUDA) return {};
  FA3_TRY(fa3::Machine* const opened, machine());
  auto& gpu = static_cast<fa3::cuda::CudaMachine&>(*opened);
  fa3::Buffers on_host = buffers;
  std::vector<int32_t> copies[fa3::kTensorCount];
  for (const fa3::TensorId id :
       {fa3::kCuSeqlensQ, fa3::kCuSeqlensKv, fa3::kSequsedQ, fa3::kSequsedKv}) {
    if (buffers.data[id] == nullptr) continue;
    const bool cuts = id == fa3::kCuSeqlensQ || id == fa3::kCuSeqlensKv;
    copies[id].resize(static_cast<size_t>(plan.problem.batch + (cuts ? 1 : 0)));
    const fa3::Status status =
        gpu.download(copies[id].data(), buffers.data[id], copies[id].size() * sizeof(int32_t),
                     fa3::StreamRef::of(stream));
    if (!status.ok()) {
      return {status.code,
              fmt::format("forward: FA3_CHECK=1 reads {}: {}; unset FA3_CHECK, or run once without "
                          "the graph",
                          fa3::tensor_name(id), status.message)};
    }
    on_host.data[id] = copies[id].data();
  }
  return fa3::check_values(plan.problem, on_host);
}
