// SPDX-License-Identifier: BSD-3-Clause
// json_parse.cpp — Json::parse: nlohmann's parser, event by event, without its values.
#include <nlohmann/json.hpp>

#include "core/json.h"

namespace fa3 {
namespace {

using Event = nlohmann::json;

// Values nested deeper are refused: they would be freed by as deep a recursion.
constexpr size_t kMaxDepth = 32;

// Takes the parser's events; each answers whether to go on. The arrays and objects that have begun
// are in `open_`, the outermost first, each with the name that it has in the one before.
class Builder {
 public:
  std::optional<Json> take() { return std::move(result_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Event::number_integer_t value) { return add(value); }
  bool number_unsigned(Event::number_unsigned_t value) { return add(value); }
  bool number_float(Event::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& text) { return add(std::move(text)); }
  bool binary(Event::binary_t&) { return false; }
  bool start_object(size_t) { return begin(true); }
  bool key(std::string& name) {
    name_ = std::move(name);
    return true;
  }
  bool end_object() { return end(); }
  bool start_array(size_t) { return begin(false); }
  bool end_array() { return end(); }
  bool parse_error(size_t, const std::string&, const Event::exception&) { return false; }

 private:
  struct Open {
    std::string name;
    bool is_object;
    Json::Object members;
    Json array = Json::array();
  };

  bool add(Json value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.push_back({std::move(name_), std::move(value)});
    } else {
      open_.back().array.push_back(std::move(value));
    }
    return true;
  }
  bool begin(bool is_object) {
    if (open_.size() == kMaxDepth) return false;
    open_.push_back({std::move(name_), is_object, {}});
    name_.clear();
    return true;
  }
  bool end() {
    Open ended = std::move(open_.back());
    open_.pop_back();
    name_ = std::move(ended.name);
    return add(ended.is_object ? Json::object(std::move(ended.members)) : std::move(ended.array));
  }

  std::vector<Open> open_;
  std::string name_;
  std::optional<Json> result_;
};

}  // namespace

std::optional<Json> Json::parse(std::string_view text) {
  Builder builder;
  if (!Event::sax_parse(text, &builder)) return std::nullopt;
  return builder.take();
}

}  // namespace fa3
