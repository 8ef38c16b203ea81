// SPDX-License-Identifier: BSD-3-Clause
// output.h — writing to stdout so that a full disk or a closed pipe is an error, not silence.
#pragma once

#include <string_view>

namespace fa3::cli {

// Makes sure that file descriptors 0–2 are open (a closed one becomes one that refuses to be
// written, so that no file of ours can take its number) and that a broken pipe is an error to
// report rather than a signal.
void prepare_streams();

// Appends to stdout. Throws CliError{kFailed} when it cannot be written.
void print(std::string_view text);

// Flushes stdout. Throws CliError{kFailed} when it cannot be written.
void flush();

}  // namespace fa3::cli
