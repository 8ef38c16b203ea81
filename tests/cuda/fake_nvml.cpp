// SPDX-License-Identifier: BSD-3-Clause
// fake_nvml.cpp — NVML of a machine with a driver: what the benchmarks ask it.
#include <cstdio>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.159.04");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}

}  // extern "C"
