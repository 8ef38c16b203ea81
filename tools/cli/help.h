// SPDX-License-Identifier: BSD-3-Clause
// help.h — the help texts' layout: 80 columns, one line per subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "output.h"

namespace fa3::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return fold(option->get_description(), kWidth - kColumn);
  }
  std::string make_description(const CLI::App* app) const override {
    return fold(CLI::Formatter::make_description(app), kWidth);
  }
  std::string make_footer(const CLI::App* app) const override {
    return fold(CLI::Formatter::make_footer(app), kWidth);
  }
  // The first line of a description is its summary.
  std::string make_subcommand(const CLI::App* sub) const override {
    constexpr size_t kNames = 14;
    const std::string text = sub->get_description();
    std::stringstream out;
    CLI::detail::format_help(out, sub->get_name(),
                             fold(text.substr(0, text.find('\n')), kWidth - kNames), kNames);
    return out.str();
  }

 private:
  static constexpr size_t kColumn = 28;
  static constexpr size_t kWidth = 80;
};

}  // namespace fa3::cli
