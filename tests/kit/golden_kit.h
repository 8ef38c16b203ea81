// SPDX-License-Identifier: BSD-3-Clause
// golden_kit.h — lines held to a file of tests/golden: a change is a diff of it.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace fa3::kit {

using Lines = std::vector<std::string>;

inline Lines read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Lines of a that b lacks.
inline std::string only_in(const Lines& a, const Lines& b, char mark) {
  const std::multiset<std::string> others(b.begin(), b.end());
  std::string text;
  for (const std::string& line : a) {
    if (!others.contains(line)) text += fmt::format("{} {}\n", mark, line);
  }
  return text;
}

// What is not in the file is written beside the test.
inline void expect_file(const std::filesystem::path& golden, const Lines& now) {
  const Lines before = read_lines(golden);
  if (now == before) return;
  const std::filesystem::path written = std::filesystem::absolute(golden.filename());
  std::ofstream file(written);
  for (const std::string& line : now) file << line << '\n';
  FAIL() << golden.filename().string() << " changed:\n"
         << (now.empty() ? "" : now.front()) << '\n'
         << only_in(before, now, '-') << only_in(now, before, '+') << "If it is meant to: cp "
         << written.string() << ' ' << golden.lexically_normal().string();
}

// name: of the file, whose first line is the header.
inline void expect_golden(const std::string& name, const std::string& header, Lines now) {
  now.insert(now.begin(), header);
  expect_file(std::filesystem::path(FA3_GOLDEN_DIR) / name, now);
}

}  // namespace fa3::kit
