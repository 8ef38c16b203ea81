// SPDX-License-Identifier: BSD-3-Clause
// json_text.cpp — JSON as indented text.
#include "json_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_leaf(const Json& value) {
  if (!value.is_structured()) return true;
  // A list of scalars fits on a line.
  return value.is_array() &&
         std::none_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured(); });
}

std::string leaf_text(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "-";
  if (value.is_number_integer() && key.size() > 6 && key.ends_with("_bytes"))
    return size_text(value.get<int64_t>());
  if (value.is_array()) {
    std::string text;
    for (const Json& v : value) text += (text.empty() ? "" : ", ") + leaf_text("", v);
    return text;
  }
  return dump(value);
}

// A small object below the top level takes one line: "dtype f32, stride_row 256".
bool is_row(const Json& value, int indent) {
  return indent > 0 && value.is_object() && value.size() <= 4 &&
         std::all_of(value.begin(), value.end(), is_leaf);
}

std::string row_text(const Json& value) {
  std::string text;
  for (const auto& [key, member] : value.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, leaf_text(key, member));
  return text;
}

}  // namespace

std::string size_text(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < (int64_t{1} << 20)) return fmt::format("{:.4g} KiB", b / 1024);
  if (bytes < (int64_t{1} << 30)) return fmt::format("{:.4g} MiB", b / (1 << 20));
  return fmt::format("{:.4g} GiB", b / (1 << 30));
}

std::string dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const Json& value, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  if (is_leaf(value)) return margin + leaf_text("", value) + "\n";
  std::string text;
  if (value.is_array()) {
    for (const Json& element : value) text += json_text(element, indent) + "\n";
    text.pop_back();
    return text;
  }
  size_t width = 0;
  for (const auto& [key, member] : value.items()) width = std::max(width, key.size());
  for (const auto& [key, member] : value.items()) {
    if (is_leaf(member))
      text += fmt::format("{}{:<{}}  {}\n", margin, key, width, leaf_text(key, member));
    else if (is_row(member, indent))
      text += fmt::format("{}{:<{}}  {}\n", margin, key, width, row_text(member));
    else
      text += fmt::format("{}{}\n{}", margin, key, json_text(member, indent + 2));
  }
  return text;
}

}  // namespace fa3::cli
