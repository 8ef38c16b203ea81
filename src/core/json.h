// SPDX-License-Identifier: BSD-3-Clause
// json.h — JSON values, for the reports of the library. Its own class, since nlohmann's allocates
// in its destructor and so ends the process where memory runs out.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace fa3 {

template <class Value>
struct NamedValue {
  std::string name;
  Value value;
};

class Json {
 public:
  using Member = NamedValue<Json>;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order in which members were added

  Json(std::nullptr_t = nullptr) {}  // NOLINT(google-explicit-constructor): values stand for these
  Json(bool value) : value_(value) {}                         // NOLINT
  Json(double value) : value_(value) {}                       // NOLINT
  Json(const char* text) : value_(std::string(text)) {}       // NOLINT
  Json(std::string text) : value_(std::move(text)) {}         // NOLINT
  Json(std::string_view text) : value_(std::string(text)) {}  // NOLINT
  template <std::signed_integral T>
  Json(T value) : value_(int64_t{value}) {}  // NOLINT
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : value_(uint64_t{value}) {}  // NOLINT

  // WORKAROUND(libstdc++ 12): a variant whose copy throws is destroyed with no alternative in it.
  Json(Json&&) = default;
  Json& operator=(Json&&) = default;

  static Json array() { return of(Array{}); }
  static Json object() { return of(Object{}); }
  // Of members of one name the first stays, with the last one's value.
  static Json object(Object members);

  // The value of an untrusted text. nullopt when it is not JSON, or nested too deep.
  static std::optional<Json> parse(std::string_view text);

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // The text, the items or the members that this holds; nullptr or none where it holds something
  // else.
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const Array& items() const;
  const Object& members() const;

  // The member of that name; nullptr where there is none.
  const Json* find(std::string_view name) const;

  // The member of that name, null when it is new. Null becomes an object.
  Json& operator[](std::string_view name);
  // Null becomes an array.
  void push_back(Json item);

  // Indented by two spaces. Texts that are not UTF-8 are made so, numbers that are not finite null.
  std::string dump() const;
  // In one line.
  std::string dump_line() const;

 private:
  template <class Value>
  static Json of(Value value) {
    Json json;
    json.value_ = std::move(value);
    return json;
  }
  void write(std::string& to, int indent) const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

}  // namespace fa3
