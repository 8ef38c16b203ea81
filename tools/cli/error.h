// SPDX-License-Identifier: BSD-3-Clause
// error.h — exit codes of the command, and the one exception that carries them to main().
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "fa3/fa3.h"

namespace fa3::cli {

enum ExitCode : int {
  kDone = 0,
  kCheckFailed = 1,
  kUsage = 2,
  kBadInput = 3,
  kUnsupported = 4,
  kFailed = 5,
  kInterrupted = 130,
  kClosedPipe = 141  // the reader of stdout is gone: ends as by SIGPIPE
};

// Ends the command: main() prints `fa3 <subcommand>: message` on stderr and exits with `code`.
class CliError : public std::runtime_error {
 public:
  CliError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw CliError(code, fmt::format(format, std::forward<Args>(args)...));
}

// Exit code for a status of the library; FA3_OK is kDone.
inline ExitCode code_of(fa3_status status) {
  switch (status) {
    case FA3_OK:
      return kDone;
    case FA3_INVALID_ARGUMENT:
      return kBadInput;
    case FA3_UNSUPPORTED:
      return kUnsupported;
    case FA3_CANCELLED:
      return kInterrupted;
    default:
      return kFailed;
  }
}

// Throws unless OK, with the library's own message.
inline void check_status(fa3_status status) {
  if (status == FA3_CANCELLED) throw CliError(kInterrupted, "interrupted; nothing written");
  if (status != FA3_OK) throw CliError(code_of(status), fa3_last_error());
}

}  // namespace fa3::cli
