// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include <set>

#include "plan/sm90/fwd_kernels.h"
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

}  // namespace

std::vector<NamedProgram> known_programs(std::span<const NamedProgram> samples) {
  std::vector<NamedProgram> all = forward("fwd").value();
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name,
                                                 std::span<const NamedProgram> samples) {
  if (name == "all") return known_programs(samples);
  if (name.substr(0, name.find('/')) == "fwd") return forward(name);
  std::vector<NamedProgram> programs;
  for (const NamedProgram& sample : samples) {
    const std::string_view full = sample.name;
    if (full.substr(0, name.size()) != name) continue;
    if (full.size() == name.size() || full[name.size()] == '/') programs.push_back(sample);
  }
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel is called so; need all, fwd, samples or a name that "
      "`fa3 jit --list` shows",
      name);
}

}  // namespace fa3
