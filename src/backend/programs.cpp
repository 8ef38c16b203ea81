// SPDX-License-Identifier: BSD-3-Clause
// programs.cpp — the list of known kernels.
#include "backend/programs.h"

#include "plan/sm90/known.h"

namespace fa3 {
namespace {

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
  std::vector<NamedProgram> all = sm90::known_forward("fwd").value();
  const std::vector<NamedProgram> decode = sm90::known_decode(false);
  all.insert(all.end(), decode.begin(), decode.end());
  const std::vector<NamedProgram> before = sm90::known_quantizing();
  all.insert(all.end(), before.begin(), before.end());
  const std::vector<NamedProgram> behind = sm90::known_backward(false);
  all.insert(all.end(), behind.begin(), behind.end());
  const std::vector<NamedProgram> merges = sm90::known_merges();
  all.insert(all.end(), merges.begin(), merges.end());
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

Result<std::vector<NamedProgram>> programs_named(std::string_view name,
                                                 std::span<const NamedProgram> samples) {
  if (name == "all") return known_programs(samples);
  if (name.substr(0, name.find('/')) == "fwd") return sm90::known_forward(name);
  std::vector<NamedProgram> programs;
  add_named(samples, name, programs);
  add_named(sm90::known_quantizing(), name, programs);
  if (name.starts_with("decode") || name.starts_with("combine"))
    add_named(sm90::known_decode(name.find_first_of('/') != name.npos, name), name, programs);
  add_named(sm90::known_merges(), name, programs);
  if (name.starts_with("v_image")) add_named(sm90::known_v_images(), name, programs);
  if (name.starts_with("mask_")) add_named(sm90::known_mask_readers(), name, programs);
  add_named(sm90::known_backward(name.find_first_of('/') != name.npos), name, programs);
  if (!programs.empty()) return programs;
  return invalid(
      "jit: kernels '{}': no kernel has this name; need all, fwd, decode, combine, bwd, quantize, "
      "merge, score_offset, mask_bits, mask_image, v_image, samples or one that `fa3 jit --list` "
      "shows",
      name);
}

}  // namespace fa3
