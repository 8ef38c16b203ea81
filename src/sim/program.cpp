// SPDX-License-Identifier: BSD-3-Clause
// program.cpp — the table of programs, filled before main() or while the library is loaded.
#include "sim/program.h"

#include <map>

namespace fa3::sim {
namespace {

std::map<std::string, Kernel>& table() {
  static std::map<std::string, Kernel> programs;
  return programs;
}

std::string without_blanks(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n') out += c;
  return out;
}

}  // namespace

Registration::Registration(const char* expression, Kernel kernel) {
  table().emplace(without_blanks(expression), std::move(kernel));
}

const Kernel* find_program(const std::string& expression) {
  const auto found = table().find(without_blanks(expression));
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string> program_expressions() {
  std::vector<std::string> out;
  for (const auto& [expression, kernel] : table()) out.push_back(expression);
  return out;
}

}  // namespace fa3::sim
