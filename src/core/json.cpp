// SPDX-License-Identifier: BSD-3-Clause
// json.cpp — JSON values: members, items, text.
#include "core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace fa3 {
namespace {

constexpr int kOneLine = -1;

// Bytes of the UTF-8 character at the front; 0 when there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool beyond = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || beyond ? 0 : length;
}

void write_text(std::string& to, std::string_view text) {
  to += '"';
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = utf8_length(text);
    if (length == 0) {
      to += "\uFFFD";
    } else if (c == '"' || c == '\\') {
      to += {'\\', c};
    } else if (c == '\n') {
      to += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(to), "\\u{:04x}", static_cast<int>(c));
    } else {
      to += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  to += '"';
}

void start_line(std::string& to, int indent) {
  if (indent == kOneLine) return;
  to += '\n';
  to.append(static_cast<size_t>(indent), ' ');
}

// `open` item, item, … `close`, one to a line.
template <class Items, class Write>
void write_list(std::string& to, char open, char close, const Items& items, int indent,
                const Write& write_item) {
  to += open;
  const int inner = indent == kOneLine ? kOneLine : indent + 2;
  bool first = true;
  for (const auto& item : items) {
    if (!first) to += ',';
    first = false;
    start_line(to, inner);
    write_item(item, inner);
  }
  if (!first) start_line(to, indent);
  to += close;
}

}  // namespace

// By sorting: a search for each name would take hours for a large text.
Json Json::object(Object members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int names = members[a].name.compare(members[b].name);
    return names < 0 || (names == 0 && a < b);
  });
  std::vector<bool> again(members.size());
  size_t first = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    Member &kept = members[order[first]], &next = members[order[i]];
    again[order[i]] = kept.name == next.name;
    if (again[order[i]])
      kept.value = std::move(next.value);
    else
      first = i;
  }
  size_t kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (again[i]) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.erase(members.begin() + static_cast<ptrdiff_t>(kept), members.end());
  return of(std::move(members));
}

const Json::Array& Json::items() const {
  static const Array none;
  const Array* const array = std::get_if<Array>(&value_);
  return array == nullptr ? none : *array;
}

const Json::Object& Json::members() const {
  static const Object none;
  const Object* const object = std::get_if<Object>(&value_);
  return object == nullptr ? none : *object;
}

const Json* Json::find(std::string_view name) const {
  const Object& object = members();
  const auto found = std::find_if(object.begin(), object.end(),
                                  [&](const Member& member) { return member.name == name; });
  return found == object.end() ? nullptr : &found->value;
}

Json& Json::operator[](std::string_view name) {
  if (const Json* const known = find(name)) return const_cast<Json&>(*known);
  if (!is_object()) value_ = Object{};
  Object& object = *std::get_if<Object>(&value_);
  object.push_back({std::string(name), nullptr});
  return object.back().value;
}

void Json::push_back(Json item) {
  if (!is_array()) value_ = Array{};
  std::get_if<Array>(&value_)->push_back(std::move(item));
}

void Json::write(std::string& to, int indent) const {
  struct Visitor {
    std::string& to;
    int indent;

    void operator()(std::nullptr_t) const { to += "null"; }
    void operator()(bool value) const { to += value ? "true" : "false"; }
    void operator()(int64_t value) const { fmt::format_to(std::back_inserter(to), "{}", value); }
    void operator()(uint64_t value) const { fmt::format_to(std::back_inserter(to), "{}", value); }
    void operator()(double value) const {
      if (!std::isfinite(value)) {
        to += "null";
        return;
      }
      const size_t start = to.size();
      fmt::format_to(std::back_inserter(to), "{}", value);
      if (to.find_first_of(".e", start) == std::string::npos) to += ".0";
    }
    void operator()(const std::string& value) const { write_text(to, value); }
    void operator()(const Array& array) const {
      write_list(to, '[', ']', array, indent,
                 [&](const Json& item, int inner) { item.write(to, inner); });
    }
    void operator()(const Object& object) const {
      write_list(to, '{', '}', object, indent, [&](const Member& member, int inner) {
        write_text(to, member.name);
        to += indent == kOneLine ? ":" : ": ";
        member.value.write(to, inner);
      });
    }
  };
  std::visit(Visitor{to, indent}, value_);
}

std::string Json::dump() const {
  std::string text;
  write(text, 0);
  return text;
}

std::string Json::dump_line() const {
  std::string text;
  write(text, kOneLine);
  return text;
}

}  // namespace fa3
