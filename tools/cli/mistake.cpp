// SPDX-License-Identifier: BSD-3-Clause
// mistake.cpp — finds the unexpected argument, and the name nearest to it.
#include "mistake.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <numeric>

namespace fa3::cli {
namespace {

// Characters to insert, delete or replace to turn a into b (the edit distance).
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = corner + (a[i] == b[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, corner + 1});
    }
  }
  return row.back();
}

// "-V" for "--version": one letter and the long name's first.
bool abbreviates(const std::string& text, const std::string& name) {
  return text.size() == 2 && text[0] == '-' && name.size() > 3 && name.starts_with("--") &&
         std::tolower(static_cast<unsigned char>(text[1])) == name[2];
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool has(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> names = option_names(app);
  return std::find(names.begin(), names.end(), name) != names.end();
}

const CLI::App& parsed(const CLI::App& app) {
  const std::vector<const CLI::App*> subs =
      app.get_subcommands([](const CLI::App* sub) { return sub->parsed(); });
  return subs.empty() ? app : *subs.front();
}

}  // namespace

std::string nearest(const std::string& text, const std::vector<std::string>& names) {
  const size_t most = std::min<size_t>(3, text.size() / 2);
  std::string best;
  size_t least = most + 1;
  for (const std::string& name : names) {
    const bool begun = abbreviates(text, name) || (text.size() > 3 && name.starts_with(text));
    const size_t off = begun ? 0 : distance(text, name);
    if (off < least) {
      least = off;
      best = name;
    }
  }
  return best.empty() ? "" : fmt::format(" (did you mean {}?)", best);
}

std::string command_of(const CLI::App& app) {
  const CLI::App& sub = parsed(app);
  return &sub == &app ? app.get_name() : app.get_name() + " " + sub.get_name();
}

std::string mistake(const CLI::App& app, const CLI::ParseError& error) {
  const std::string who = command_of(app), help = fmt::format("; see {} --help", who);
  std::vector<std::string> unknown = app.remaining(true);
  std::erase(unknown, "--");
  if (unknown.empty()) return error.what() + help;
  const std::string& all = unknown.front();
  const std::string text = all.substr(0, all.find('='));
  if (text[0] != '-') return fmt::format("unexpected argument '{}'", all) + help;
  const CLI::App& sub = parsed(app);
  // An option of the subcommand before its name, or where there is none.
  const std::vector<const CLI::App*> subs = app.get_subcommands({});
  const bool elsewhere = std::any_of(subs.begin(), subs.end(),
                                     [&](const CLI::App* other) { return has(*other, text); });
  if (has(sub, text) || (&sub == &app && elsewhere))
    return fmt::format("{} goes after the command: {} {}", text,
                       &sub == &app ? who + " COMMAND" : who, text) +
           help;
  return fmt::format("unknown option {}{}", text, nearest(text, option_names(sub))) + help;
}

}  // namespace fa3::cli
