// SPDX-License-Identifier: BSD-3-Clause
// program.cpp — the table of programs, filled when one is first asked for.
#include "sim/program.h"

#include <map>
#include <mutex>

namespace fa3::sim {
namespace {

std::map<std::string, Kernel>& table() {
  static std::map<std::string, Kernel> programs;
  return programs;
}

std::mutex mutex;
Registrations* waiting = nullptr;  // a list without allocations

std::string without_blanks(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n') out += c;
  return out;
}

}  // namespace

Registrations::Registrations(void (*make)()) : make_(make), next_(waiting) { waiting = this; }

// What ran out of memory is made again by the next call.
void make_registrations() {
  const std::lock_guard lock(mutex);
  for (; waiting != nullptr; waiting = waiting->next_) waiting->make_();
}

Registration::Registration(const char* expression, Kernel kernel) {
  table().emplace(without_blanks(expression), std::move(kernel));
}

const Kernel* find_program(const std::string& expression) {
  make_registrations();
  const auto found = table().find(without_blanks(expression));
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string> program_expressions() {
  make_registrations();
  std::vector<std::string> out;
  for (const auto& [expression, kernel] : table()) out.push_back(expression);
  return out;
}

}  // namespace fa3::sim
