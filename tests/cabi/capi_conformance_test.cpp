// SPDX-License-Identifier: BSD-3-Clause
// capi_conformance_test.cpp — fa3_conformance_run, linked: what it refuses, what it hands over, and
// that it shares its context and its errors with libfa3. Cases on a GPU are in
// tests/cli/selftest_test.py.
#include <fa3/conformance.h>

#include "capi_kit.h"

extern "C" const void* fa3_private_conformance_api(const char* version);

namespace fa3_test {
namespace {

fa3_conformance_args conformance_args() {
  fa3_conformance_args args = {};
  args.struct_size = sizeof args;
  args.filter = "^matrix/";
  args.backend = FA3_BACKEND_SIM;
  return args;
}

TEST(Conformance, WrongArguments_AreRefused) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  const char* report = "unchanged";
  EXPECT_EQ(fa3_conformance_run(nullptr, nullptr, &report), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(report, nullptr);
  EXPECT_THAT(fa3_last_error(), HasSubstr("context is NULL"));
  const auto refused = [&](fa3_conformance_args args, const char* says) {
    EXPECT_EQ(fa3_conformance_run(context.get(), &args, &report), FA3_INVALID_ARGUMENT) << says;
    EXPECT_THAT(fa3_last_error(), HasSubstr(says));
    EXPECT_THAT(fa3_last_error(), testing::StartsWith("conformance: "));
  };
  fa3_conformance_args args = conformance_args();
  args.struct_size = 8;
  refused(args, "struct_size=8");
  args = conformance_args();
  args.backend = FA3_BACKEND_CPU;
  refused(args, "backend=1");
  args = conformance_args();
  args.list = 2;
  refused(args, "list=2");
  args = conformance_args();
  args.measure = 1;
  refused(args, "backend=4");  // has no speed to measure
  args = conformance_args();
  args.first = 1000;
  refused(args, "first=1000");
  args = conformance_args();
  args.filter = "[";
  refused(args, "filter='['");
}

TEST(Conformance, RunsTheCasesOfSelftest) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  std::vector<std::string> names;
  fa3_conformance_args args = conformance_args();
  args.on_case_user = &names;
  args.on_case = [](void* user, const fa3_conformance_result* result) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(result->name);
    EXPECT_EQ(result->struct_size, sizeof(fa3_conformance_result));
    EXPECT_EQ(result->status, FA3_CONFORMANCE_PASSED) << result->message;
    return 0;
  };
  const char* report = nullptr;
  ASSERT_EQ(fa3_conformance_run(context.get(), &args, &report), FA3_OK) << fa3_last_error();
  const std::string linked = report;
  EXPECT_EQ(Json::parse(linked)["summary"]["passed"], names.size());
  EXPECT_GT(names.size(), 5u);

  fa3_selftest_args same = {};
  same.struct_size = sizeof same;
  same.filter = args.filter;
  same.backend = args.backend;
  ASSERT_EQ(fa3_selftest(context.get(), &same, &report), FA3_OK) << fa3_last_error();
  EXPECT_EQ(linked, report);
}

TEST(Conformance, CallbackCanStopIt) {
  const fa3::Context context = open_context(FA3_BACKEND_AUTO);
  fa3_conformance_args args = conformance_args();
  args.list = 1;
  args.on_case = [](void*, const fa3_conformance_result* result) {
    EXPECT_EQ(result->status, FA3_CONFORMANCE_SKIPPED);
    return 1;
  };
  EXPECT_EQ(fa3_conformance_run(context.get(), &args, nullptr), FA3_CANCELLED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("on_case asked to stop after case 1"));
}

TEST(Conformance, OtherVersion_GetsNothing) {
  EXPECT_NE(fa3_private_conformance_api(fa3_version()), nullptr);
  EXPECT_EQ(fa3_private_conformance_api("0.0.9"), nullptr);
  EXPECT_THAT(fa3_last_error(), HasSubstr("libfa3_conformance.so is of version 0.0.9"));
  EXPECT_THAT(fa3_last_error(), HasSubstr(std::string("libfa3.so of ") + fa3_version()));
  EXPECT_THAT(fa3_last_error(), HasSubstr("install both together"));
}

}  // namespace
}  // namespace fa3_test
