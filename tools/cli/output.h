// SPDX-License-Identifier: BSD-3-Clause
// output.h — writing to stdout so that a full disk or a closed pipe is an error, not silence.
#pragma once

#include <string>
#include <string_view>

namespace fa3::cli {

// Makes sure that file descriptors 0–2 are open (a closed one becomes one that refuses to be
// written, so that no file of ours can take its number) and that a closed pipe is an error, so that
// temporary files are removed, rather than a signal.
void prepare_streams();

// Appends to stdout. Throws CliError: kClosedPipe when its reader is gone, kFailed when it
// cannot be written.
void print(std::string_view text);

// As print(), for people: lines wider than the terminal are broken between words and continue below
// the beginning of the value. To files and pipes they go unbroken.
void print_text(std::string_view text);
// The text as print_text() prints it, made before files are committed: what fails then leaves none.
std::string as_shown(std::string_view text);

// Flushes stdout. Throws as print() does.
void flush();

// Columns of the terminal behind a descriptor, 80 where that is unknown.
int terminal_columns(int fd);

// Breaks lines of more than `columns` between words, where there are any; for print_text().
std::string fold(std::string_view text, size_t columns);

// Ends the process as SIGPIPE would: silently, as programs in a pipeline do.
[[noreturn]] void end_by_closed_pipe();

}  // namespace fa3::cli
