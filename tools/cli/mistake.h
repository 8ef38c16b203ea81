// SPDX-License-Identifier: BSD-3-Clause
// mistake.h — a wrong command line in words: which argument, and what was probably meant.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace fa3::cli {

// " (did you mean --json?)" for the name nearest to `text`, "" when none is near.
std::string nearest(const std::string& text, const std::vector<std::string>& names);

// "fa3", "fa3 run": the command that was being parsed.
std::string command_of(const CLI::App& app);

// What is wrong and where to read on, without the command's name.
std::string mistake(const CLI::App& app, const CLI::ParseError& error);

}  // namespace fa3::cli
