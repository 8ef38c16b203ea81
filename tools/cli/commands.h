// SPDX-License-Identifier: BSD-3-Clause
// commands.h — the subcommands: each adds its options and returns what to run.
#pragma once

#include <functional>

#include "parser.h"

namespace fa3::cli {

// Does the work of a subcommand and returns the exit code; throws CliError.
using Action = std::function<int()>;

Action add_run(Parser& parser);
Action add_quantize(Parser& parser);
Action add_check(Parser& parser);
Action add_bench(Parser& parser);
Action add_tune(Parser& parser);
Action add_info(Parser& parser);
Action add_jit(Parser& parser);
Action add_explain(Parser& parser);
Action add_selftest(Parser& parser);
Action add_completion(Parser& parser);
Action add_man(Parser& parser);

}  // namespace fa3::cli
