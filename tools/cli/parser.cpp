// SPDX-License-Identifier: BSD-3-Clause
// parser.cpp — options by CLI11.
#include "parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace fa3::cli {
namespace {

// Validators run on the text before CLI11 converts it, which would mistake 010 for 8 and clip
// what overflows.
CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const std::optional<int64_t> value = parse_integer(text);
        if (value && *value >= least && *value <= most) {
          text = std::to_string(*value);
          return "";
        }
        const std::string end = most == INT64_MAX ? " to 2^63 - 1" : fmt::format(" to {}", most);
        return fmt::format("got '{}', need a whole number from {}{}", text, least, end);
      },
      "");
}

CLI::Validator real_number() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        char* stop = nullptr;
        errno = 0;
        const double value = std::strtod(text.c_str(), &stop);
        if (text.empty() || *stop != '\0')
          return fmt::format("got '{}', need a number, e.g. 0.125", text);
        // What rounds to 0 or Inf: 0 would mean the default.
        if (errno == ERANGE && (value == 0 || std::isinf(value)))
          return fmt::format("got '{}', need 0 or a number from 5e-324 to 1.7e308", text);
        return "";
      },
      "");
}

// Its own name is the list, for names_of(). Without names any text but none: "" is what variables
// hold whose option was not given, as a script's does that expands to nothing.
CLI::Validator one_of(const Parser::Names& names, const std::string& unit) {
  return CLI::Validator(
      [names, unit](std::string& text) -> std::string {
        if (names.empty()) return text.empty() ? fmt::format("got '', need {}", unit) : "";
        if (std::find(names.begin(), names.end(), text) != names.end()) return "";
        return fmt::format("got '{}', need one of {}", text, fmt::join(names, ", "));
      },
      "", fmt::format("{}", fmt::join(names, " ")));
}

}  // namespace

std::optional<int64_t> parse_integer(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

void Parser::flag(const char* name, bool& value, const char* help) {
  app_.add_flag(name, value, help)->group(group_);
}

void Parser::text(const char* name, std::string& value, const char* unit, const char* help,
                  const Names& names) {
  CLI::Option* option = app_.add_option(name, value, help)->type_name(unit)->group(group_);
  option->check(one_of(names, unit));
  if (!value.empty()) option->capture_default_str();
}

void Parser::text(const char* name, std::optional<std::string>& value, const char* unit,
                  const char* help, const Names& names) {
  app_.add_option(name, value, help)->type_name(unit)->group(group_)->check(one_of(names, unit));
}

void Parser::texts(const char* name, Names& values, const char* unit, const char* help) {
  app_.add_option(name, values, help)
      ->type_name(unit)
      ->group(group_)
      ->expected(1)
      ->take_all()
      ->check(one_of({}, unit));
}

void Parser::any_text(const char* name, std::string& value, const char* unit, const char* help) {
  app_.add_option(name, value, help)->type_name(unit)->group(group_)->capture_default_str();
}

void Parser::any_text(const char* name, std::optional<std::string>& value, const char* unit,
                      const char* help) {
  app_.add_option(name, value, help)->type_name(unit)->group(group_);
}

void Parser::required(const char* name, std::string& value, const char* unit, const char* help,
                      const Names& names) {
  CLI::Option* option = app_.add_option(name, value, help)->type_name(unit)->group(group_);
  option->required()->check(one_of(names, unit));
}

void Parser::whole(const char* name, int64_t& value, const char* help, int64_t least,
                   int64_t most) {
  CLI::Option* option = app_.add_option(name, value, help)->type_name("N")->group(group_);
  option->transform(whole_number(least, most))->capture_default_str();
}

void Parser::whole(const char* name, std::optional<int64_t>& value, const char* help,
                   int64_t least) {
  CLI::Option* option = app_.add_option(name, value, help)->type_name("N")->group(group_);
  option->transform(whole_number(least, INT64_MAX));
}

void Parser::real(const char* name, double& value, const char* help) {
  CLI::Option* option = app_.add_option(name, value, help)->type_name("X")->group(group_);
  option->check(real_number())->capture_default_str();
}

std::string names_of(CLI::Option& option) {
  try {
    return option.get_validator(0)->get_name();
  } catch (const CLI::OptionNotFound&) {  // it has no validator
    return "";
  }
}

std::string Parser::given(const char* group) const {
  for (const CLI::Option* option : app_.get_options())
    if (option->count() > 0 && option->get_group() == group) return option->get_name();
  return "";
}

std::string Parser::given_beside(const Names& names) const {
  for (const CLI::Option* option : app_.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && std::find(names.begin(), names.end(), name) == names.end())
      return name;
  }
  return "";
}

bool Parser::has(const char* name) const { return app_.count(name) > 0; }

}  // namespace fa3::cli
