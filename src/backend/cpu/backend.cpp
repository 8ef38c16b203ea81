// SPDX-License-Identifier: BSD-3-Clause
// backend.cpp — plans and runs of the backends cpu and reference.
#include "backend/cpu/backend.h"

#include <algorithm>
#include <array>

#include "backend/cpu/append.h"
#include "backend/cpu/call_progress.h"
#include "backend/cpu/combine.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"
#include "backend/cpu/fill.h"
#include "backend/cpu/max_logit.h"
#include "backend/cpu/quantize.h"
#include "backend/cpu/reference.h"
#include "backend/cpu/reference_combine.h"
#include "backend/cpu/reference_quantize.h"
#include "plan/explain.h"
#include "plan/work.h"

namespace fa3 {
namespace {

// Rows that share a scale: those of a tile of FlashAttention-3's kernels, about.
constexpr RecipeRows kRecipeRows{128, 128, 128};

Plan plan_for(const Problem& problem, const DeviceInfo& device) {
  Plan plan;
  plan.problem = problem;
  plan.backend = device.backend;
  plan.threads = device.threads;
  if (problem.appends()) plan.append = make_append(problem);
  if (problem.precision != FA3_PRECISION_DEFAULT) plan.recipe = make_recipe(problem, kRecipeRows);
  const Problem& attention = plan.recipe ? plan.recipe->attention.problem : problem;
  if (attention.is_8_bit()) {
    plan.decoded = cpu::decoded(attention);
    plan.decoded_bytes = cpu::decoded_bytes(attention);
  }
  return plan;
}

// FLOPs of attention in the time in which an element is decoded or appended, and how many times as
// long one is quantised: for shares of the progress alone.
constexpr double kFlopsOfElement = 50, kPasses = 4;

double weight_of(const Problem& quantization) {
  const Problem& p = quantization;
  return kPasses * static_cast<double>(p.entries_of(kX) * p.rows_of(kX) * p.heads_q) *
         static_cast<double>(p.head_dim_qk);
}

// Of what is appended, the codes, and what is decoded from them.
size_t input_bytes(const Plan& plan) {
  return (plan.append ? plan.append->bytes : 0) + (plan.recipe ? plan.recipe->bytes : 0) +
         plan.decoded_bytes;
}

double elements_of(const Append& append, const Problem& p) {
  const double of_q = append.rotates() ? 1.0 * p.heads_q * p.q.rows : 0;
  const double of_keys = 2.0 * p.heads_kv * p.fresh.rows;
  return (of_q + of_keys) * static_cast<double>(p.head_dim_qk);
}

}  // namespace

std::string HostBackend::explain(const Plan& plan) const { return fa3::explain(plan, {}); }

Result<WorkspaceLease> HostBackend::workspace(size_t bytes, void*) {
  return workspaces_.borrow(bytes);
}

Status HostBackend::run(const Plan& plan, const Buffers& buffers, std::byte* workspace, void*) {
  const Problem& problem = plan.problem;
  if (problem.op == FA3_OP_COMBINE) {
    combine(problem, buffers, executor_);
    return {};
  }
  std::byte* const begin = aligned(workspace);
  reset_max_logit(problem, buffers);
  if (plan.append && has_no_rows(problem)) append(problem, *plan.append, buffers, begin, executor_);
  const bool attends = problem.op != FA3_OP_QUANTIZE;
  const bool no_keys = problem.batch == 0 || (has_no_keys(problem) && !problem.has_sinks());
  if (attends && (has_no_rows(problem) || no_keys)) {
    fill_all_rows(problem, buffers);
    return {};
  }
  fill_unowned_rows(problem, buffers);
  if (problem.op == FA3_OP_QUANTIZE) {
    quantize(problem, buffers, begin, executor_);
    return {};
  }
  if (plan.append) {
    run_appending(plan, buffers, begin);
  } else if (plan.decoded) {
    run_prepared(plan, buffers, begin);
  } else {
    compute(plan, buffers, begin, executor_);
  }
  return {};
}

void HostBackend::run_appending(const Plan& plan, const Buffers& buffers, std::byte* begin) {
  const double before = elements_of(*plan.append, plan.problem);
  const double of_attention = work_of(plan.problem).flops / kFlopsOfElement;
  CallProgress progress(executor_, before + of_attention);
  const Executor appending = progress.next(before);
  append(plan.problem, *plan.append, buffers, begin, appending);
  const Executor attending = progress.next(of_attention);
  compute(plan, plan.append->attention.buffers(buffers, begin), begin + plan.append->bytes,
          attending);
}

// 8 bits: quantised first if need be, and decoded.
void HostBackend::run_prepared(const Plan& plan, const Buffers& buffers, std::byte* begin) {
  const int steps = plan.recipe ? plan.recipe->count : 0;
  std::array<double, 3> weights{};
  double all = 0;
  for (int i = 0; i < steps; ++i)
    all += weights[i] = weight_of(plan.recipe->quantizations[i].problem);
  const double of_decoding = static_cast<double>(plan.decoded_bytes) / sizeof(float);
  const double of_attention = work_of(plan.problem).flops / kFlopsOfElement;
  CallProgress progress(executor_, all + of_decoding + of_attention);

  Buffers inputs = buffers;
  std::byte* const decoded = begin + (plan.recipe ? plan.recipe->bytes : 0);
  for (int i = 0; i < steps; ++i) {
    const Executor executor = progress.next(weights[i]);
    const Part& part = plan.recipe->quantizations[i];
    quantize(part.problem, part.buffers(buffers, begin), decoded, executor);
  }
  if (plan.recipe) inputs = plan.recipe->attention.buffers(buffers, begin);
  const Problem& attention = plan.recipe ? plan.recipe->attention.problem : plan.problem;
  const Executor decoding = progress.next(of_decoding);
  inputs = cpu::decode(attention, inputs, decoded, decoding);
  const Executor attending = progress.next(of_attention);
  compute(plan, inputs, decoded + plan.decoded_bytes, attending);
}

Result<Plan> CpuBackend::plan(const Problem& problem) const {
  if (is_attention(problem.op) && problem.layout[kQ].dtype == FA3_F64) {
    return unsupported(
        "{}: dtype f64 on backend cpu, need f32, f16 or bf16; convert, or use backend reference",
        op_name(problem.op));
  }
  Plan plan = plan_for(problem, device());
  plan.why =
      fmt::format("backend cpu ({}, {} threads): {}", isa_name(device().isa), device().threads,
                  device().backend_chosen ? "the context's options name it"
                                          : "the context's device is the CPU");
  if (problem.op == FA3_OP_QUANTIZE) {
    plan.workspace_bytes = with_alignment(cpu::quantize_workspace_bytes(problem, device().threads));
    return plan;
  }
  if (problem.op == FA3_OP_COMBINE) return plan;
  const CpuPlan& cpu = plan.cpu.emplace(
      make_cpu_plan(plan.computed(), device().isa, device().lanes, device().threads));
  const size_t computed = cpu.shared_bytes + device().threads * cpu.scratch_bytes;
  size_t bytes = input_bytes(plan) + computed;
  for (int i = 0; plan.recipe && i < plan.recipe->count; ++i) {
    bytes = std::max(
        bytes, plan.recipe->bytes + cpu::quantize_workspace_bytes(
                                        plan.recipe->quantizations[i].problem, device().threads));
  }
  plan.workspace_bytes = with_alignment(bytes);
  return plan;
}

void CpuBackend::compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                         const Executor& executor) {
  const bool forward = plan.problem.op == FA3_OP_FORWARD;
  forward ? cpu::forward(plan, buffers, workspace, executor)
          : cpu::backward(plan, buffers, workspace, executor);
}

void CpuBackend::quantize(const Problem& problem, const Buffers& buffers, std::byte* workspace,
                          const Executor& executor) {
  cpu::quantize(problem, buffers, workspace, executor);
}

void CpuBackend::combine(const Problem& problem, const Buffers& buffers, const Executor& executor) {
  cpu::combine(problem, buffers, device().isa, executor);
}

Result<Plan> ReferenceBackend::plan(const Problem& problem) const {
  Plan plan = plan_for(problem, device());
  plan.why = fmt::format("backend reference (FP64, {} threads): the context's options name it",
                         device().threads);
  if (problem.image.keys > 0 && problem.op == FA3_OP_QUANTIZE)
    return unsupported(
        "quantize: v_image on backend reference, which knows no kernel's tiles; use backend cpu, "
        "or leave v_image out");
  if (!is_attention(problem.op)) return plan;
  plan.workspace_bytes = with_alignment(
      input_bytes(plan) + reference::workspace_bytes(plan.computed(), device().threads));
  return plan;
}

void ReferenceBackend::compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                               const Executor& executor) {
  const bool forward = plan.problem.op == FA3_OP_FORWARD;
  forward ? reference::forward(plan.computed(), buffers, workspace, executor)
          : reference::backward(plan.problem, buffers, workspace, executor);
}

void ReferenceBackend::quantize(const Problem& problem, const Buffers& buffers, std::byte*,
                                const Executor& executor) {
  reference::quantize(problem, buffers, executor);
}

void ReferenceBackend::combine(const Problem& problem, const Buffers& buffers,
                               const Executor& executor) {
  reference::combine(problem, buffers, executor);
}

}  // namespace fa3
