// SPDX-License-Identifier: BSD-3-Clause
// help.h — the help texts' layout: wrapped descriptions, one line per subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fa3::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap(option->get_description());
  }
  // The first line of a description is its summary.
  std::string make_subcommand(const CLI::App* sub) const override {
    const std::string text = sub->get_description();
    std::stringstream out;
    CLI::detail::format_help(out, sub->get_name(), text.substr(0, text.find('\n')), kColumn);
    return out.str();
  }

 private:
  static constexpr size_t kColumn = 32;
  static constexpr size_t kWidth = 100 - kColumn;

  static std::string wrap(std::string text) {
    for (size_t line = 0; text.size() - line > kWidth;) {
      const size_t space = text.rfind(' ', line + kWidth);
      if (space == std::string::npos || space <= line) break;
      text[space] = '\n';
      line = space + 1;
    }
    return text;
  }
};

}  // namespace fa3::cli
