// SPDX-License-Identifier: BSD-3-Clause
// status.h — how fa3 says no: Status and Result<T> decline by value, Error breaks by exception.
// Both become fa3_status and fa3_last_error() at the C boundary (src/api/boundary.h) and nowhere
// else.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "fa3/fa3.h"

namespace fa3 {

// Code and message `where: what, got, need; what to do`. Default = OK.
struct [[nodiscard]] Status {
  fa3_status code = FA3_OK;
  std::string message;

  bool ok() const { return code == FA3_OK; }
};

template <class... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {FA3_INVALID_ARGUMENT, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Status unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return {FA3_UNSUPPORTED, fmt::format(format, std::forward<Args>(args)...)};
}

// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by intent, `return value;`
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: `return invalid(...)`

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

// For what should not happen: an operating-system failure, a broken invariant.
class Error : public std::exception {
 public:
  Error(fa3_status code, std::string message) : status_{code, std::move(message)} {}
  const char* what() const noexcept override { return status_.message.c_str(); }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

// Returns from the enclosing function with the Status when it is not OK.
#define FA3_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                   \
    if (::fa3::Status fa3_status_ = (expression); !fa3_status_.ok()) return fa3_status_; \
  } while (false)

// FA3_TRY(const T x, f(…)): declares x as the value of a Result, or returns its Status from the
// enclosing function.
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define FA3_TRY(declaration, expression) \
  FA3_TRY_NAMED(FA3_TRY_NAME(fa3_result_, __LINE__), declaration, expression)
#define FA3_TRY_NAMED(result, declaration, expression) \
  auto result = (expression);                          \
  if (!result.ok()) return result.status();            \
  declaration = std::move(result).value()
#define FA3_TRY_NAME(prefix, line) FA3_TRY_JOIN(prefix, line)
#define FA3_TRY_JOIN(prefix, line) prefix##line
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace fa3
