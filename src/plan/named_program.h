// SPDX-License-Identifier: BSD-3-Clause
// named_program.h — kernels by name.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/program.h"

namespace fa3 {

struct NamedProgram {
  std::string name;  // "fwd/d128/bf16/causal/dense", "samples/gemm/bf16"; "" = none
  Program program;
};

// Each name once, in the order in which they are added.
class NamedKernels {
 public:
  template <class K>  // a PlanKernel
  void add(const K& kernel) {
    std::string name = name_of(kernel);
    if (names_.insert(name).second) programs.push_back({std::move(name), program_of(kernel)});
  }

  std::vector<NamedProgram> programs;

 private:
  std::set<std::string> names_;
};

// Those whose name begins with `name`, as a whole or up to a slash.
inline void add_named(std::span<const NamedProgram> from, std::string_view name,
                      std::vector<NamedProgram>& programs) {
  for (const NamedProgram& program : from) {
    const std::string_view full = program.name;
    if (full.substr(0, name.size()) != name) continue;
    if (full.size() == name.size() || full[name.size()] == '/') programs.push_back(program);
  }
}

}  // namespace fa3
