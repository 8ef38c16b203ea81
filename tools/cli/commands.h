// SPDX-License-Identifier: BSD-3-Clause
// commands.h — the subcommands: each adds its options and returns what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace fa3::cli {

// Does the work of a subcommand and returns the exit code; throws CliError.
using Action = std::function<int()>;

Action add_run(CLI::App& app);
Action add_check(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_info(CLI::App& app);
Action add_explain(CLI::App& app);

}  // namespace fa3::cli
