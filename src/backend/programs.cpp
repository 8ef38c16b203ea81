// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include <set>
#include <utility>

#include "plan/plan.h"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/fwd/kernels.h"
#include "plan/sm90/fwd/v_image_plan.h"
#include "plan/sm90/roofline.h"

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
        programs.push_back({own, sm90::program_of(sm90::VImagePlan{{}, image})});
    }
    programs.push_back(
        {kernel.name, {sm90::fwd_header(c), sm90::fwd_expression(c, kernel.functors)}});
  }
  return programs;
}

// A forward of 16 bits without a precision or attn_mask.
Problem problem_of(int64_t head_dim_qk, int64_t head_dim_v, fa3_dtype dtype, int64_t rows) {
  Problem p;
  p.batch = p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = head_dim_qk, p.head_dim_v = head_dim_v;
  p.q.rows = p.q.max_seqlen = p.kv.rows = p.kv.max_seqlen = rows;
  p.softmax_scale = 1;
  const auto give = [&](TensorId id, int64_t columns, fa3_dtype of) {
    p.layout[id] = {of, rows * columns, columns, columns};
  };
  for (const TensorId id : {kQ, kK}) give(id, head_dim_qk, dtype);
  for (const TensorId id : {kV, kO}) give(id, head_dim_v, dtype);
  give(kLse, 1, FA3_F32);
  return p;
}

constexpr int64_t kHeadDims[] = {64, 96, 128, 192, 256};  // of the forward's table

// The kernels of plans that stand before attention; `images`: those that turn V into an image, too,
// which forward() has beside kernels that take one.
class KernelsBefore {
 public:
  explicit KernelsBefore(bool images) : images_(images) {}

  void add_of(const Problem& problem) {
    const Result<KernelPlan> plan = plan_kernels(problem, sm90::h200());
    if (!plan.ok()) return;
    for (const KernelStep& step : plan.value().steps) {
      if (std::holds_alternative<sm90::FwdPlan>(step.kernel) ||
          std::holds_alternative<sm90::BwdPlan>(step.kernel) ||
          (std::holds_alternative<sm90::VImagePlan>(step.kernel) && !images_))
        continue;
      std::string name = std::visit([](const auto& k) { return name_of(k); }, step.kernel);
      if (names_.insert(name).second) programs.push_back({std::move(name), step.program});
    }
  }
  std::vector<NamedProgram> programs;

 private:
  bool images_;
  std::set<std::string> names_;
};

constexpr int64_t kLengths[] = {64, 1024, 2048, 4096, 16384};  // for each row of the tables

// Those that `precision` puts there: of problems of that length, dense and varlen.
void add_quantizing(int64_t rows, fa3_mask mask, KernelsBefore& kernels) {
  for (const int64_t head_dim_qk : kHeadDims)
    for (const int64_t head_dim_v : kHeadDims)
      for (const fa3_dtype dtype : {FA3_F16, FA3_BF16})
        for (const fa3_precision precision :
             {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
          Problem p = problem_of(head_dim_qk, head_dim_v, dtype, rows);
          p.precision = precision, p.mask = mask;
          kernels.add_of(p);
          p.q.varlen = p.kv.varlen = true;
          kernels.add_of(p);
        }
}
std::vector<NamedProgram> before_forward() {
  KernelsBefore kernels(false);
  add_quantizing(1024, FA3_MASK_FULL, kernels);
  return kernels.programs;
}
std::vector<NamedProgram> images() {
  KernelsBefore kernels(true);
  for (const int64_t rows : kLengths)
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL})
      add_quantizing(rows, mask, kernels);
  return kernels.programs;
}

// Those that read attn_mask, for the tiles of every row that takes one.
std::vector<NamedProgram> before_masks() {
  KernelsBefore kernels(false);
  for (const int64_t head_dim_qk : kHeadDims)
    for (const int64_t head_dim_v : {head_dim_qk, int64_t{128}})
      for (const fa3_dtype dtype : {FA3_F16, FA3_BF16})
        for (const fa3_dtype type : {FA3_BOOL, FA3_F32, dtype})
          for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW})
            for (const int64_t rows : kLengths) {
              Problem p = problem_of(head_dim_qk, head_dim_v, dtype, rows);
              p.mask = mask, p.left = p.right = rows / 8;
              p.layout[kAttnMask] = {type, 0, rows, 0};
              kernels.add_of(p);
              p.op = FA3_OP_BACKWARD;
              for (const auto& [gradient, of] :
                   {std::pair(kDq, kQ), {kDk, kK}, {kDv, kV}, {kDout, kO}})
                p.layout[gradient] = p.layout[of];
              kernels.add_of(p);
            }
  return kernels.programs;
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
    for (int variant = 0; variant < (all ? 128 : 32); ++variant) {
      constexpr MaskTensor kMasks[] = {MaskTensor::kNone, MaskTensor::kBool, MaskTensor::kF32,
                                       MaskTensor::k16};
      sm90::BwdPlan plan;
      plan.config = row.config;
      plan.config.dtype = (variant & 1) != 0 ? MmaType::kF16 : MmaType::kBf16;
      plan.config.ragged = (variant & 2) != 0;
      plan.config.softcap = (variant & 4) != 0;
      plan.config.functors = (variant & 8) != 0;
      plan.config.deterministic = (variant & 16) != 0;
      plan.config.attn_mask = kMasks[variant / 32];
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
      if (!plan.config.adds_mask()) continue;
      plan.pass = sm90::BwdPass::kMaskGradient, plan.config.sets_zeros = false;
      for (const sm90::BwdConfig& gradient : sm90::mask_gradients_of(plan.config)) {
        plan.gradient = gradient;
        add(plan);
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
  if (name.starts_with("v_image")) add_named(images(), name, programs);
  if (name.starts_with("mask_")) add_named(before_masks(), name, programs);
  add_named(backward(name.find_first_of('/') != name.npos), name, programs);
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel has this name; need all, fwd, bwd, quantize, score_offset, "
      "mask_bits, mask_image, v_image, samples or a name that `fa3 jit --list` shows",
      name);
}

}  // namespace fa3
