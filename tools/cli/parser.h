// SPDX-License-Identifier: BSD-3-Clause
// parser.h — declares a subcommand's options: name, variable, unit, help. Keeps CLI11, which takes
// seconds to compile wherever it is included, out of the commands.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fa3::cli {

// Wrong text is refused with `--batch: got 'x', need …`. A variable's value is its default, shown
// in the help; an optional shows none, so its help says what happens without it. `unit`
// is what the help calls the value.
class Parser {
 public:
  explicit Parser(CLI::App& app) : app_(app) {}

  // The heading for the options that follow.
  void group(const char* name) { group_ = name; }

  using Names = std::vector<std::string>;
  void flag(const char* name, bool& value, const char* help);
  // Text, not ""; with `names` one of them.
  void text(const char* name, std::string& value, const char* unit, const char* help,
            const Names& names = {});
  void text(const char* name, std::optional<std::string>& value, const char* unit, const char* help,
            const Names& names = {});
  void texts(const char* name, Names& values, const char* unit, const char* help);  // repeatable
  // Text for which "" is a value.
  void any_text(const char* name, std::string& value, const char* unit, const char* help);
  void any_text(const char* name, std::optional<std::string>& value, const char* unit,
                const char* help);
  void required(const char* name, std::string& value, const char* unit, const char* help,
                const Names& names = {});
  void whole(const char* name, int64_t& value, const char* help, int64_t least = 0,
             int64_t most = INT64_MAX);
  void whole(const char* name, std::optional<int64_t>& value, const char* help, int64_t least = 0);
  void real(const char* name, double& value, const char* help);

  // After parsing: the first option of that heading that the command line has, "" = none.
  std::string given(const char* group) const;
  // After parsing: the first option but these that the command line has, "" = none.
  std::string given_beside(const Names& names) const;
  // After parsing: whether it has this option.
  bool has(const char* name) const;

  CLI::App& app() const { return app_; }

 private:
  CLI::App& app_;
  std::string group_ = "Options";
};

// The names that an option takes, separated by blanks; "" when it takes other values.
std::string names_of(CLI::Option& option);

// "12" as a number: the whole text, decimal, within 64 bits.
std::optional<int64_t> parse_integer(const std::string& text);

}  // namespace fa3::cli
