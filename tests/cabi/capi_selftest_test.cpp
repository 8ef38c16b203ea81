// SPDX-License-Identifier: BSD-3-Clause
// capi_selftest_test.cpp — fa3_selftest: what it refuses, what it hands over, and that it can be
// stopped, where nothing is linked but libfa3.
#include "capi_kit.h"

namespace fa3_test {
namespace {

fa3_selftest_args selftest_args() {
  fa3_selftest_args args = {};
  args.struct_size = sizeof args;
  args.filter = "^matrix/";
  args.backend = FA3_BACKEND_SIM;
  return args;
}

TEST(Selftest, WrongArguments_AreRefused) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  const char* report = "unchanged";
  EXPECT_EQ(fa3_selftest(nullptr, nullptr, &report), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(report, nullptr);
  const auto refused = [&](fa3_selftest_args args, const char* says) {
    EXPECT_EQ(fa3_selftest(context.get(), &args, &report), FA3_INVALID_ARGUMENT) << says;
    EXPECT_THAT(fa3_last_error(), HasSubstr(says));
  };
  fa3_selftest_args args = selftest_args();
  args.struct_size = 8;
  refused(args, "struct_size=8");
  args = selftest_args();
  args.backend = FA3_BACKEND_CPU;
  refused(args, "backend=1");
  args = selftest_args();
  args.list = 2;
  refused(args, "list=2");
  args = selftest_args();
  args.measure = 2;
  refused(args, "measure=2");
  args.measure = 1;
  refused(args, "backend=4");  // has no speed to measure
  args.backend = FA3_BACKEND_AUTO;
  args.list = 1;
  refused(args, "list=1");
  args = selftest_args();
  args.filter = "[";
  refused(args, "filter='['");
  args.filter = "^$";
  refused(args, "matches no case");
}

TEST(Selftest, EachCaseIsHandedOver) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  std::vector<std::string> names;
  fa3_selftest_args args = selftest_args();
  args.on_case_user = &names;
  args.on_case = [](void* user, const fa3_case_result* result) {
    auto& seen = *static_cast<std::vector<std::string>*>(user);
    seen.emplace_back(result->name);
    EXPECT_EQ(result->struct_size, sizeof(fa3_case_result));
    EXPECT_EQ(result->status, FA3_CASE_PASSED) << result->message;
    EXPECT_EQ(static_cast<size_t>(result->done), seen.size());
    EXPECT_STREQ(result->message, "");
    EXPECT_EQ(result->device_lost, 0);
    return 0;
  };
  const char* report = nullptr;
  ASSERT_EQ(fa3_selftest(context.get(), &args, &report), FA3_OK) << fa3_last_error();
  const Json document = Json::parse(report);
  ASSERT_EQ(document["cases"].size(), names.size());
  EXPECT_EQ(document["summary"]["passed"], names.size());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(document["cases"][i]["name"], names[i]);

  args.on_case = nullptr;
  args.first = static_cast<int32_t>(names.size()) - 1;
  ASSERT_EQ(fa3_selftest(context.get(), &args, &report), FA3_OK) << fa3_last_error();
  const Json last = Json::parse(report);
  ASSERT_EQ(last["cases"].size(), 1u);
  EXPECT_EQ(last["cases"][0]["name"], names.back());
  ++args.first;  // nothing is left to run
  ASSERT_EQ(fa3_selftest(context.get(), &args, &report), FA3_OK) << fa3_last_error();
  EXPECT_EQ(Json::parse(report)["summary"]["cases"], 0);
  ++args.first;
  EXPECT_EQ(fa3_selftest(context.get(), &args, &report), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("first="));
}

// A program built before the measurements.
TEST(Selftest, SmallerStruct_MeasuresNothing) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  fa3_selftest_args args = selftest_args();
  args.struct_size = offsetof(fa3_selftest_args, measure);
  args.measure = 2;
  const char* report = nullptr;
  ASSERT_EQ(fa3_selftest(context.get(), &args, &report), FA3_OK) << fa3_last_error();
  EXPECT_FALSE(Json::parse(report).contains("measurements"));
}

TEST(Selftest, CallbackCanStopIt) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  int calls = 0;
  fa3_selftest_args args = selftest_args();
  args.list = 1;
  args.on_case_user = &calls;
  args.on_case = [](void* user, const fa3_case_result* result) {
    ++*static_cast<int*>(user);
    EXPECT_EQ(result->status, FA3_CASE_SKIPPED);
    return 1;
  };
  EXPECT_EQ(fa3_selftest(context.get(), &args, nullptr), FA3_CANCELLED);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace fa3_test
