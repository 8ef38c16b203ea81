// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include "plan/fwd_kernels.h"

namespace fa3 {
namespace {

NamedProgram gemm(const char* name, const char* config) {
  return {std::string("samples/gemm/") + name,
          {"device/selftest/gemm.cuh",
           std::string("fa3::gemm<fa3::GemmConfig{fa3::MmaType::") + config + "}>"}};
}

// Of the device layer, which examples, tests and measurements run.
const std::vector<NamedProgram>& samples() {
  static const std::vector<NamedProgram> programs = {
      gemm("bf16", "kBf16, 256, 3, false, false"),
      gemm("f16", "kF16, 192, 3, true, false"),
      gemm("e4m3", "kE4m3, 128, 4, false, false"),
      gemm("bf16_transposed", "kBf16, 128, 4, true, true"),
      gemm("e5m2", "kE5m2, 64, 4, false, true"),
      {"samples/attention", {"device/selftest/attention.cuh", "fa3::attention"}},
      {"samples/chain8", {"device/selftest/chain8.cuh", "fa3::chain8<false>"}},
      {"samples/chain8_transposed", {"device/selftest/chain8.cuh", "fa3::chain8<true>"}},
  };
  return programs;
}

Result<std::vector<NamedProgram>> forward(std::string_view name) {
  FA3_TRY(const std::vector<FwdKernel> kernels, fwd_kernels(name));
  std::vector<NamedProgram> programs;
  for (const FwdKernel& kernel : kernels)
    programs.push_back({kernel.name, {fwd_header(kernel.config), fwd_expression(kernel.config)}});
  return programs;
}

}  // namespace

const std::vector<NamedProgram>& known_programs() {
  static const std::vector<NamedProgram> programs = [] {
    std::vector<NamedProgram> all = forward("fwd").value();
    all.insert(all.end(), samples().begin(), samples().end());
    return all;
  }();
  return programs;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name) {
  if (name == "all") return known_programs();
  if (name.substr(0, name.find('/')) == "fwd") return forward(name);
  std::vector<NamedProgram> programs;
  for (const NamedProgram& sample : samples()) {
    const std::string_view full = sample.name;
    if (full == name || full.substr(0, name.size() + 1) == std::string(name) + "/")
      programs.push_back(sample);
  }
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel is called so; need all, fwd, samples or a name that "
      "`fa3 jit --list` shows",
      name);
}

}  // namespace fa3
