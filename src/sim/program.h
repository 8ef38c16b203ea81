// SPDX-License-Identifier: BSD-3-Clause
// program.h — the kernels that were compiled for the host, under the name expressions that NVRTC
// uses.
#pragma once

#include <string>
#include <vector>

#include "sim/device.h"

namespace fa3::sim {

// The kernel of a name expression (blanks do not count); null when none was compiled in.
const Kernel* find_program(const std::string& expression);
std::vector<std::string> program_expressions();

template <class Args>
Kernel kernel_of(void (*kernel)(const Args)) {
  return [kernel](const void* args) { kernel(*static_cast<const Args*>(args)); };
}

struct Registration {
  Registration(const char* expression, Kernel kernel);
};

// Registrations that are made when a program is first asked for: while a library is loaded, memory
// that runs out would end the process. For namespace scope.
class Registrations {
 public:
  explicit Registrations(void (*make)());

 private:
  friend void make_registrations();

  void (*make_)();
  Registrations* next_;
};

// FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{…}>) at namespace scope compiles the kernel in.
#define FA3_SIM_PROGRAM(...) FA3_SIM_PROGRAM_NAMED(__COUNTER__, __VA_ARGS__)
#define FA3_SIM_PROGRAM_NAMED(number, ...) FA3_SIM_PROGRAM_AT(number, __VA_ARGS__)
#define FA3_SIM_PROGRAM_AT(number, ...)                       \
  static const ::fa3::sim::Registrations fa3_program##number( \
      [] { ::fa3::sim::Registration(#__VA_ARGS__, ::fa3::sim::kernel_of(&__VA_ARGS__)); });

}  // namespace fa3::sim
