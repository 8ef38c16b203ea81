// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include "plan/sm90/fwd_kernels.h"

namespace fa3 {
namespace {

// Of the device layer, which examples, tests and measurements run: name, header, expression.
constexpr const char* kSamples[][3] = {
#define FA3_GEMM(name, config)                                 \
  {                                                            \
    "samples/gemm/" name, "device/selftest/gemm.cuh",          \
        "fa3::gemm<fa3::GemmConfig{fa3::MmaType::" config "}>" \
  }
    FA3_GEMM("bf16", "kBf16, 256, 3, false, false"),
    FA3_GEMM("f16", "kF16, 192, 3, true, false"),
    FA3_GEMM("e4m3", "kE4m3, 128, 4, false, false"),
    FA3_GEMM("bf16_transposed", "kBf16, 128, 4, true, true"),
    FA3_GEMM("e5m2", "kE5m2, 64, 4, false, true"),
#undef FA3_GEMM
    {"samples/attention", "device/selftest/attention.cuh", "fa3::attention"},
    {"samples/chain8", "device/selftest/chain8.cuh", "fa3::chain8<false>"},
    {"samples/chain8_transposed", "device/selftest/chain8.cuh", "fa3::chain8<true>"},
};

// Those whose name is `name` or begins with it and a slash.
void add_samples(std::string_view name, std::vector<NamedProgram>& programs) {
  for (const auto& [full_name, header, expression] : kSamples) {
    const std::string_view full = full_name;
    if (full.substr(0, name.size()) != name) continue;
    if (full.size() == name.size() || full[name.size()] == '/')
      programs.push_back({full_name, {header, expression}});
  }
}

Result<std::vector<NamedProgram>> forward(std::string_view name) {
  FA3_TRY(const std::vector<sm90::FwdKernel> kernels, sm90::fwd_kernels(name));
  std::vector<NamedProgram> programs;
  for (const sm90::FwdKernel& kernel : kernels)
    programs.push_back(
        {kernel.name, {sm90::fwd_header(kernel.config), sm90::fwd_expression(kernel.config)}});
  return programs;
}

}  // namespace

const std::vector<NamedProgram>& known_programs() {
  static const std::vector<NamedProgram> programs = [] {
    std::vector<NamedProgram> all = forward("fwd").value();
    add_samples("samples", all);
    return all;
  }();
  return programs;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name) {
  if (name == "all") return known_programs();
  if (name.substr(0, name.find('/')) == "fwd") return forward(name);
  std::vector<NamedProgram> programs;
  add_samples(name, programs);
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel is called so; need all, fwd, samples or a name that "
      "`fa3 jit --list` shows",
      name);
}

}  // namespace fa3
