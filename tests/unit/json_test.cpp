// SPDX-License-Identifier: BSD-3-Clause
// json_test.cpp — JSON as nlohmann's writes it, and what is read.
#include "core/json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace fa3 {
namespace {

TEST(Json, Dump_IsAsNlohmanns) {
  Json json;
  json["texts"].push_back("a \"b\" \\ \n \t \x01 \u00e9 \xff\xc3");
  json["numbers"].push_back(0.1);
  json["numbers"].push_back(1e300);
  json["numbers"].push_back(2.0);
  json["numbers"].push_back(std::numeric_limits<double>::infinity());
  json["numbers"].push_back(std::numeric_limits<uint64_t>::max());
  json["numbers"].push_back(-7);
  json["nothing"];
  json["object"]["yes"] = true;
  json["empty"]["array"] = Json::array();
  json["empty"]["object"] = Json::object();
  using Other = nlohmann::ordered_json;
  const Other other = {
      {"texts", {"a \"b\" \\ \n \t \x01 \u00e9 \xEF\xBF\xBD\xEF\xBF\xBD"}},
      {"numbers", {0.1, 1e300, 2.0, nullptr, std::numeric_limits<uint64_t>::max(), -7}},
      {"nothing", nullptr},
      {"object", {{"yes", true}}},
      {"empty", {{"array", Other::array()}, {"object", Other::object()}}}};
  EXPECT_EQ(Other::parse(json.dump()), other);
  json["texts"] = nullptr;  // texts and numbers may be written in several ways
  json["numbers"] = nullptr;
  Other same = other;
  same["texts"] = same["numbers"] = nullptr;
  EXPECT_EQ(json.dump(), same.dump(2));
}

TEST(Json, Parse_TakesWhatDumpGives) {
  const std::string text = R"({"a":[1,-2,0.5,"x",null,true,{"b":{}}],"c":[[]]})";
  const auto json = Json::parse(text);
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->dump_line(), text);
  EXPECT_EQ(json->find("a")->items().size(), 7u);
  EXPECT_EQ(*json->find("a")->items()[3].text(), "x");
  EXPECT_EQ(json->find("b"), nullptr);
}

// The last value of a name counts, in the first one's place.
TEST(Json, Parse_OfANameTwice_TakesTheLast) {
  const auto json = Json::parse(R"({"b":1,"a":2,"b":[3],"c":{"x":1,"x":2},"a":4,"b":5})");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->dump_line(), R"({"b":5,"a":4,"c":{"x":2}})");
}

// In time that grows little faster than the text: a minute and more for this if it were squared.
TEST(Json, Parse_OfManyMembers_TakesSeconds) {
  std::string text = "{";
  constexpr int kMembers = 400'000;
  for (int i = 0; i < kMembers; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text.back() = '}';
  const std::clock_t start = std::clock();  // of this process: others may have the processor
  const auto json = Json::parse(text);
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->members().size(), size_t{kMembers});
  EXPECT_LT(std::clock() - start, std::clock_t{30} * CLOCKS_PER_SEC);
}

TEST(Json, Parse_RefusesMalformedAndDeep) {
  for (const char* text : {"", "[", "{\"a\"}", "[1] 2"}) EXPECT_FALSE(Json::parse(text)) << text;
  EXPECT_FALSE(Json::parse(std::string(1'000'000, '[')));
}

}  // namespace
}  // namespace fa3
