// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include "plan/plan.h"

namespace fa3 {

std::vector<NamedProgram> known_programs(std::span<const NamedProgram> samples) {
  std::vector<NamedProgram> all = known_kernels();
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name,
                                                 std::span<const NamedProgram> samples) {
  if (name == "all") return known_programs(samples);
  FA3_TRY(std::vector<NamedProgram> programs, kernels_named(name));
  add_named(samples, name, programs);
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel has this name; need all, fwd, decode, combine, bwd, quantize, "
      "merge, score_offset, mask_bits, mask_image, v_image, samples or one that `fa3 jit --list` "
      "shows",
      name);
}

}  // namespace fa3
