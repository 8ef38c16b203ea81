// SPDX-License-Identifier: BSD-3-Clause
// manual.cpp — `fa3 man` and `fa3 completion`: the options' own help texts, for man and for
// shells.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "output.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<CLI::App*> commands_of(CLI::App& root) { return root.get_subcommands({}); }

// "--output -o"
std::string names_text(const CLI::Option& option) {
  std::string text;
  for (const std::string& name : option.get_lnames()) text += " --" + name;
  for (const std::string& name : option.get_snames()) text += " -" + name;
  return text.empty() ? text : text.substr(1);
}

bool takes_value(const CLI::Option& option) { return !option.get_type_name().empty(); }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// ---- man ----------------------------------------------------------------------------------------

// As roff shows it: no request, no escape, every hyphen one that can be copied.
std::string roff(std::string text) {
  text = replaced(replaced(std::move(text), "\\", "\\e"), "-", "\\-");
  text = replaced(std::move(text), "\n.", "\n\\&.");
  return !text.empty() && (text[0] == '.' || text[0] == '\'') ? "\\&" + text : text;
}

std::string roff_option(const CLI::Option& option) {
  std::string names = replaced(names_text(option), " ", ", ");
  if (names.empty()) names = option.get_name();
  std::string text = fmt::format(".TP\n\\fB{}\\fR", roff(names));
  if (takes_value(option)) text += fmt::format(" \\fI{}\\fR", roff(option.get_type_name()));
  const std::string usual = option.get_default_str();
  if (!usual.empty()) text += fmt::format(" [{}]", roff(usual));
  return text + "\n" + roff(option.get_description()) + "\n";
}

std::string man(CLI::App& root) {
  std::string text = fmt::format(
      ".TH FA3 1 \"\" \"fa3 {}\" \"User Commands\"\n.SH NAME\nfa3 \\- exact attention on the "
      "tensors of a file\n.SH SYNOPSIS\n.B fa3\n.I COMMAND\n[\\fIOPTION\\fR]...\n.SH DESCRIPTION\n"
      "{}\n.SH COMMANDS\n",
      roff(fa3_version()), roff(root.get_description()));
  for (CLI::App* command : commands_of(root)) {
    text += fmt::format(".SS fa3 {}\n{}\n", roff(command->get_name()),
                        replaced(roff(command->get_description()), "\n", "\n.br\n"));
    for (const CLI::Option* option : command->get_options()) text += roff_option(*option);
  }
  text += ".SH EXIT STATUS\n" + roff(root.get_footer()) + "\n.SH ENVIRONMENT\n";
  for (const Json& v : Json::parse(fa3_environment()))
    text += fmt::format(".TP\n\\fB{}\\fR [{}]\n{}\n", roff(v.value("name", "")),
                        roff(v.value("default", "")), roff(v.value("meaning", "")));
  return text;
}

// ---- Shells -------------------------------------------------------------------------------------

// Words after a command or after an option that takes names. An empty list leaves it to the shell,
// which offers files.
std::string bash(CLI::App& root) {
  std::string cases, commands;
  for (CLI::App* command : commands_of(root)) {
    const std::string name = command->get_name();
    commands += name + " ";
    std::string words;
    for (CLI::Option* option : command->get_options()) {
      const std::string names = names_text(*option);
      words += (names.empty() ? names_of(*option) : names) + " ";
      if (names.empty() || !takes_value(*option)) continue;
      const std::string pattern =
          fmt::format("\"{} {}\"", name, replaced(names, " ", fmt::format("\"|\"{} ", name)));
      cases += fmt::format("    {}) words=\"{}\" ;;\n", pattern, names_of(*option));
    }
    cases += fmt::format("    \"{} \"*) words=\"{}\" ;;\n", name, words);
  }
  return fmt::format(
      "# Completion of fa3 for bash, made by `fa3 completion bash`.\n"
      "_fa3() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} words=\n"
      "  case \"${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}\" in\n"
      "    *\" ${{COMP_WORDS[0]}}\") words=\"{}--help --version\" ;;\n{}"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "}}\n"
      "complete -o default -F _fa3 fa3\n",
      commands, cases);
}

// zsh runs bash's.
std::string zsh(CLI::App& root) {
  return "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
         "autoload -Uz bashcompinit && bashcompinit\n" +
         bash(root);
}

std::string quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish(CLI::App& root) {
  std::string text = "# Completion of fa3 for fish, made by `fa3 completion fish`.\n";
  for (CLI::App* command : commands_of(root)) {
    const std::string name = command->get_name(), about = command->get_description();
    text += fmt::format("complete -c fa3 -n __fish_use_subcommand -f -a {} -d {}\n", name,
                        quoted(about.substr(0, about.find('\n'))));
    for (CLI::Option* option : command->get_options()) {
      const std::string names = names_of(*option);
      if (option->get_positional() && names.empty()) continue;  // a file, which the shell offers
      text += fmt::format("complete -c fa3 -n '__fish_seen_subcommand_from {}'", name);
      for (const std::string& n : option->get_lnames()) text += " -l " + n;
      for (const std::string& n : option->get_snames()) text += " -s " + n;
      if (takes_value(*option) && option->nonpositional()) text += names.empty() ? " -r" : " -x";
      if (!names.empty()) text += " -a " + quoted(names);
      text += " -d " + quoted(option->get_description()) + "\n";
    }
  }
  return text;
}

}  // namespace

Action add_completion(Parser& parser) {
  auto shell = std::make_shared<std::string>();
  parser.required("shell", *shell, "SHELL", "Whose completion: bash, zsh, fish",
                  {"bash", "zsh", "fish"});
  return [shell, root = parser.app().get_parent()]() -> int {
    print(*shell == "bash" ? bash(*root) : *shell == "zsh" ? zsh(*root) : fish(*root));
    return kDone;
  };
}

Action add_man(Parser& parser) {
  return [root = parser.app().get_parent()]() -> int {
    print(man(*root));
    return kDone;
  };
}

}  // namespace fa3::cli
