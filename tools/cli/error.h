// SPDX-License-Identifier: BSD-3-Clause
// error.h — exit codes of the command, and the one exception that carries them to main().
#pragma once

#include <fmt/format.h>

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
  kInterrupted = 130
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

// Throws what the library's status says, with the library's own message.
inline void check_status(fa3_status status) {
  switch (status) {
    case FA3_OK:
      return;
    case FA3_INVALID_ARGUMENT:
      throw CliError(kBadInput, fa3_last_error());
    case FA3_UNSUPPORTED:
      throw CliError(kUnsupported, fa3_last_error());
    case FA3_CANCELLED:
      throw CliError(kInterrupted, "interrupted; nothing written");
    default:
      fail(kFailed, "{} ({})", fa3_last_error(), fa3_status_name(status));
  }
}

}  // namespace fa3::cli
