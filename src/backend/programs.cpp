// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include <set>

#include "plan/plan.h"
#include "plan/sm90/bwd_configs.h"
#include "plan/sm90/fwd_kernels.h"
#include "plan/sm90/roofline.h"
#include "plan/sm90/v_image_plan.h"

namespace fa3 {
namespace {

Result<std::vector<NamedProgram>> forward(std::string_view name) {
  FA3_TRY(const std::vector<sm90::FwdKernel> kernels, sm90::fwd_kernels(name));
  std::vector<NamedProgram> programs;
  std::set<std::string> images;
  for (const sm90::FwdKernel& kernel : kernels) {
    const sm90::FwdConfig& c = kernel.config;
    if (c.v_image) {
      const sm90::VImageConfig image{c.turned_v(), c.ragged};
      const std::string own = sm90::v_image_name(image);
      if (images.insert(own).second)
        programs.push_back({own, sm90::program_of(sm90::VImagePlan{image})});
    }
    programs.push_back(
        {kernel.name, {sm90::fwd_header(c), sm90::fwd_expression(c, kernel.functors)}});
  }
  return programs;
}

// A forward of 16 bits, whose plan with a precision has every kernel before the forward.
Problem problem_of(int64_t head_dim, fa3_dtype dtype, fa3_precision precision) {
  Problem p;
  p.batch = p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.q.rows = p.q.max_seqlen = p.kv.rows = p.kv.max_seqlen = 1024;
  p.softmax_scale = 1;
  p.precision = precision;
  for (const TensorId id : {kQ, kK, kV, kO})
    p.layout[id] = {dtype, 1024 * head_dim, head_dim, head_dim};
  p.layout[kLse] = {FA3_F32, 1024, 1, 1024};
  return p;
}

// The kernels that `precision` puts before a forward, of the head dims of its table.
std::vector<NamedProgram> before_forward() {
  std::vector<NamedProgram> programs;
  std::set<std::string> names;
  for (const int64_t head_dim : {64, 96, 128, 192, 256}) {
    for (const fa3_dtype dtype : {FA3_F16, FA3_BF16}) {
      for (const fa3_precision precision :
           {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
        const auto plan = plan_kernels(problem_of(head_dim, dtype, precision), sm90::h200());
        for (const KernelStep& step : plan.value().steps) {
          if (std::holds_alternative<sm90::FwdPlan>(step.kernel) ||
              std::holds_alternative<sm90::VImagePlan>(step.kernel))
            continue;  // forward() has them
          std::string name = std::visit([](const auto& k) { return name_of(k); }, step.kernel);
          if (names.insert(name).second) programs.push_back({std::move(name), step.program});
        }
      }
    }
  }
  return programs;
}

// The backward's kernels; `all`: also with terms of scores, and of rows that only a tuning names.
std::vector<NamedProgram> backward(bool all) {
  std::vector<NamedProgram> programs;
  std::set<std::string> names;
  const auto add = [&](const sm90::BwdPlan& plan) {
    std::string name = name_of(plan);
    if (names.insert(name).second) programs.push_back({std::move(name), program_of(plan)});
  };
  for (const sm90::BwdRow& row : sm90::kBwdRows) {
    for (int variant = 0; variant < 32; ++variant) {
      sm90::BwdPlan plan;
      plan.config = row.config;
      plan.config.dtype = (variant & 1) != 0 ? MmaType::kF16 : MmaType::kBf16;
      plan.config.ragged = (variant & 2) != 0;
      plan.config.softcap = (variant & 4) != 0;
      plan.config.functors = (variant & 8) != 0;
      plan.config.deterministic = (variant & 16) != 0;
      if (sm90::why_illegal(plan.config) != nullptr || (!all && (variant & 12) != 0)) continue;
      for (const auto pass : {sm90::BwdPass::kBound, sm90::BwdPass::kDelta, sm90::BwdPass::kMain,
                              sm90::BwdPass::kDq}) {
        if (pass == sm90::BwdPass::kBound && !plan.config.deterministic) continue;
        plan.pass = pass;
        for (const bool zeros : {false, true}) {
          plan.config.sets_zeros = zeros;
          if ((!zeros || row.zero_tiles > 0) && sm90::why_illegal(plan.config) == nullptr)
            add(plan);
        }
      }
    }
  }
  return programs;
}

// Those whose name begins with `name`, as a whole or up to a slash.
void add_named(std::span<const NamedProgram> from, std::string_view name,
               std::vector<NamedProgram>& programs) {
  for (const NamedProgram& program : from) {
    const std::string_view full = program.name;
    if (full.substr(0, name.size()) != name) continue;
    if (full.size() == name.size() || full[name.size()] == '/') programs.push_back(program);
  }
}

}  // namespace

std::vector<NamedProgram> known_programs(std::span<const NamedProgram> samples) {
  std::vector<NamedProgram> all = forward("fwd").value();
  const std::vector<NamedProgram> before = before_forward();
  all.insert(all.end(), before.begin(), before.end());
  const std::vector<NamedProgram> behind = backward(false);
  all.insert(all.end(), behind.begin(), behind.end());
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name,
                                                 std::span<const NamedProgram> samples) {
  if (name == "all") return known_programs(samples);
  if (name.substr(0, name.find('/')) == "fwd") return forward(name);
  std::vector<NamedProgram> programs;
  add_named(samples, name, programs);
  add_named(before_forward(), name, programs);
  add_named(backward(name.find_first_of('/') != name.npos), name, programs);
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel is called so; need all, fwd, bwd, quantize, score_offset, "
      "samples "
      "or a name that `fa3 jit --list` shows",
      name);
}

}  // namespace fa3
