// SPDX-License-Identifier: BSD-3-Clause
// probes.h — for each function of src/device/ptx a call and what its PTX must contain.
#pragma once

#include <string>
#include <vector>

namespace fa3::kit {

struct Probe {
  std::string function;
  std::string call;                       // statements; probe_source says what they may use
  std::vector<std::string> instructions;  // what its PTX contains
};

// Every function at least once; wgmma with every operand list and type.
std::vector<Probe> ptx_probes();
std::vector<Probe> wgmma_probes();  // those of them

// CUDA source with a kernel `probe_<index>` for each.
std::string probe_source(const std::vector<Probe>& probes);

}  // namespace fa3::kit
