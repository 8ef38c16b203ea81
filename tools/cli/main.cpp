// SPDX-License-Identifier: BSD-3-Clause
// main.cpp — the command `fa3`: picks the subcommand, turns every failure into a line and a code.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.h"
#include "error.h"
#include "fa3/fa3.h"
#include "help.h"
#include "interrupt.h"
#include "mistake.h"
#include "output.h"
#include "tensor_file/tensor_file.h"

namespace fa3::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 check failed, 2 usage, 3 bad input, 4 unsupported, 5 failed while "
    "running (memory, threads and disk included), 130 interrupted, 141 nobody reads stdout any "
    "more. Results go to stdout, errors and the progress bar to stderr.";

constexpr const char* kNoMemory =
    "not enough memory for the tensors; use a smaller problem, or raise the limit (ulimit -v)";

// Where there is no memory even for a message.
constexpr std::string_view kNoMemoryAtAll =
    "fa3: not enough memory; end other programs, or raise the limit (ulimit -v)\n";
constexpr std::string_view kUnknown = "fa3: failed for an unknown reason; report it\n";

int report_static(std::string_view line, ExitCode code) noexcept {
  // failing to write to stderr is not a further failure
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, line.data(), line.size());
  return code;
}

struct Command {
  const char* name;
  const char* description;  // its first line is the summary
  Action (*add)(Parser&);
};

constexpr Command kCommands[] = {
    {"run",
     "Compute attention on the tensors of a safetensors file\n"
     "Reads q, k, v (varlen: cu_seqlens_q, cu_seqlens_kv too), writes o and lse.",
     &add_run},
    {"quantize",
     "Turn the tensors of a safetensors file into 8 bits\n"
     "Writes codes, scales and means that `fa3 run` takes. q and k are turned alike first, by "
     "signs and a Hadamard transform, which spreads outliers; with rotary_cos and rotary_sin in "
     "the file by rotary embedding before that.",
     &add_quantize},
    {"check",
     "Compare a backend with the FP64 reference, on a generated problem or a file\n"
     "An output passes when its error is at most twice that of a naive computation in the same "
     "precision, plus a rounding floor, and NaN and Inf stand where they do in the reference. "
     "Where that is half as much as the values themselves or more, the output is called blind: its "
     "check says next to nothing. The exit code stays 0, since no exact implementation is bound to "
     "do better.",
     &add_check},
    {"bench",
     "Measure speed\n"
     "Times planned runs on random tensors with warm caches, after a check of a slice of each "
     "problem. FLOP/s count visible pairs of query and key only: 2 (head_dim + head_dim_v) each "
     "per query head forward, 2.5 times that backward. KV GB/s count the keys and values that some "
     "query sees once per sequence and KV head.\n"
     "A file of --cases holds a JSON array of objects. Required: name, dtype. Optional: op "
     "(forward, backward) [forward], batch [1], heads_q [1], heads_kv [heads_q], seqlen_q [1], "
     "seqlen_kv [seqlen_q], varlen_q and varlen_kv (lists of lengths), head_dim_qk [64], "
     "head_dim_v [head_dim_qk], mask (full, causal, window) [full], left and right (of a window), "
     "softmax_scale, softcap, deterministic (of a backward) and alibi (true, false) [false], "
     "sequence_ids (documents per sequence) [0], attn_mask (none, bool, f32, input) [none], "
     "mask_dims [bhqk], dattn_mask and top_left (true, false) [false], with (a list of names) [], "
     "num_splits and other numbers that are options here [0].",
     &add_bench},
    {"tune",
     "Find the fastest tiles of the GPU kernel for your problems\n"
     "Runs the rows of the kernel's table that can compute a problem in turns, on the GPU, and "
     "shows each beside the rule's choice. A row counts as faster when it is so in four fifths of "
     "the rounds and more; else the rule's stays. The file of --output says which row to use: "
     "contexts follow it where FA3_TUNING names it, on a GPU of the same name, with the same "
     "version of fa3, for problems of the same sizes (varlen: the same number of sequences and "
     "mean length, to the nearest power of two). Without it nothing changes.",
     &add_tune},
    {"info", "Show version, build, device, backends and environment variables", &add_info},
    {"jit",
     "Compile GPU kernels ahead of time\n"
     "Kernels are compiled when they are first needed and kept in a cache. This fills, shows or "
     "empties the cache, or writes kernels into a file. It needs NVRTC, but no GPU. A list of "
     "kernels is an array of {\"header\", \"expression\"}, like \"programs\" of --list --json.",
     &add_jit},
    {"explain",
     "Show how a problem would be computed, without computing it\n"
     "Backend, tiles and workspace. For the GPU kernel (--backend cuda or sim) also: which row of "
     "its table of tile sizes, why none of the others, and an estimate in clocks of an SM: what a "
     "KV tile costs each unit, which one limits, and how long the problem takes on an H200 by "
     "that.",
     &add_explain},
    {"selftest",
     "Check that GPU and simulator do what their instructions specify\n"
     "Runs programs of one or a few instructions in the simulator of Hopper GPUs and on a GPU, "
     "where there is one, and compares what they write with the specification and each other.",
     &add_selftest},
    {"completion",
     "Print what a shell needs to complete fa3's command lines\n"
     "For this shell alone: source <(fa3 completion bash)",
     &add_completion},
    {"man", "Print the manual page\nTo read it: fa3 man | man -l -", &add_man},
};

ExitCode code_of(tools::TensorFileError::Kind kind) {
  using Kind = tools::TensorFileError::Kind;
  switch (kind) {
    case Kind::kRead:
    case Kind::kContent:
    case Kind::kMissing:
    case Kind::kUnsupported:
      return kBadInput;
    case Kind::kWrite:
    case Kind::kMemory:
    case Kind::kArgument:
      return kFailed;
    case Kind::kClosed:
      return kClosedPipe;
  }
  return kFailed;
}

int report(const std::string& who, ExitCode code, const std::string& message) noexcept {
  if (code == kClosedPipe) end_by_closed_pipe();
  try {
    // A message of the library begins with its place: "fa3 jit: jit: …" says it once.
    const std::string place = who.substr(who.rfind(' ') + 1) + ": ";
    const size_t begin = message.compare(0, place.size(), place) == 0 ? place.size() : 0;
    const std::string line = fmt::format("{}: {}\n", who, message.substr(begin));
    std::fputs(line.c_str(), stderr);  // failing to write to stderr is not a further failure
    return code;
  } catch (const std::exception&) {
    return report_static(kNoMemoryAtAll, kFailed);
  }
}

// Runs `action` and reports its failure under the name `who`.
int guarded(const std::string& who, const Action& action) {
  try {
    const int code = action();
    flush();
    return code;
  } catch (const CliError& e) {
    return report(who, e.code(), e.what());
  } catch (const tools::TensorFileError& e) {
    return report(who, code_of(e.kind()), e.what());
  } catch (const std::bad_alloc&) {
    return report(who, kFailed, kNoMemory);
  } catch (const std::length_error&) {
    return report(who, kFailed, kNoMemory);
  } catch (const std::system_error& e) {
    return report(
        who, kFailed,
        fmt::format("the system refused a thread or a file ({}); use fewer --threads, end "
                    "other programs, or raise the limit (ulimit -a)",
                    e.what()));
  } catch (const std::exception& e) {
    return report(who, kFailed, e.what());
  }
}

// CLI11's message about a wrong command line, in our form.
int parse_failure(const CLI::App& app, const CLI::ParseError& e) {
  const std::string who = command_of(app);
  if (e.get_exit_code() == 0) {  // --help, --version
    return guarded(who, [&] {
      std::ostringstream out, err;
      app.exit(e, out, err);
      print(out.str());
      return static_cast<int>(kDone);
    });
  }
  return report(who, kUsage, mistake(app, e));
}

int run_command(int argc, char** argv) {
  CLI::App app("fa3: exact attention on the tensors of a file, on this machine.", "fa3");
  app.set_version_flag("--version", fmt::format("fa3 {}", fa3_version()), "Print the version");
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpFormatter>());
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Command& c : kCommands) {
    CLI::App* sub = app.add_subcommand(c.name, c.description);
    sub->footer(kFooter);
    Parser parser(*sub);
    actions.emplace_back(sub, c.add(parser));
  }
  std::vector<std::string> names;
  for (const Command& c : kCommands) names.push_back(c.name);
  const std::string first = argc < 2 ? "--" : argv[1];
  if (first == "--")
    return report(
        "fa3", kUsage,
        fmt::format("no subcommand, need one of {}; see fa3 --help", fmt::join(names, ", ")));
  const auto named = [&](const Command& c) { return first == c.name; };
  if (first[0] != '-' && std::none_of(std::begin(kCommands), std::end(kCommands), named))
    return report("fa3", kUsage,
                  fmt::format("unknown subcommand '{}', need one of {}{}; see fa3 --help", first,
                              fmt::join(names, ", "), nearest(first, names)));
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return parse_failure(app, e);
  }
  for (const auto& [sub, action] : actions)
    if (sub->parsed()) return guarded("fa3 " + sub->get_name(), action);
  return kUsage;
}

// What escapes is thrown outside of guarded(), by the options or on the way to a message.
int run_command_or_say_why(int argc, char** argv) noexcept {
  try {
    return run_command(argc, argv);
  } catch (const std::bad_alloc&) {
    return report_static(kNoMemoryAtAll, kFailed);
  } catch (...) {
    return report_static(kUnknown, kFailed);
  }
}

// A destructor may need memory too: those of JSON do, and cannot throw.
std::terminate_handler g_terminate = nullptr;
[[noreturn]] void end_without_memory() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    _exit(report_static(kNoMemoryAtAll, kFailed));
  } catch (...) {  // a defect: ends as it always does
  }
  g_terminate();
  __builtin_unreachable();
}

}  // namespace
}  // namespace fa3::cli

int main(int argc, char** argv) {
  fa3::cli::g_terminate = std::set_terminate(fa3::cli::end_without_memory);
  fa3::cli::prepare_streams();
  fa3::cli::install_interrupt_handler();
  return fa3::cli::run_command_or_say_why(argc, argv);
}
