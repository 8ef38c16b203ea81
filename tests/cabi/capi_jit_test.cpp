// SPDX-License-Identifier: BSD-3-Clause
// capi_jit_test.cpp — the calls on compiled kernels: what they refuse, and that bundled only means
// it. What they do is tested in tests/cli/jit_test.py, with a compiler at hand.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "capi_kit.h"

namespace {

using ::testing::HasSubstr;

TEST(Jit, MissingArguments_AreRefused) {
  const char* report = nullptr;
  for (const fa3_status status :
       {fa3_jit_warm(nullptr, nullptr, &report), fa3_jit_pack(nullptr, nullptr, "/p"),
        fa3_jit_warm_kernels(nullptr, nullptr, 0, &report),
        fa3_jit_pack_kernels(nullptr, nullptr, 0, "/p"), fa3_jit_list(nullptr, &report),
        fa3_jit_clear(nullptr)}) {
    EXPECT_EQ(status, FA3_INVALID_ARGUMENT);
  }
  fa3_context* context = nullptr;
  ASSERT_EQ(fa3_context_create(nullptr, &context), FA3_OK);
  EXPECT_EQ(fa3_jit_list(context, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("report is NULL"));
  EXPECT_EQ(fa3_jit_pack(context, nullptr, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("path is NULL"));
  EXPECT_EQ(fa3_jit_pack(context, nullptr, ""), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(fa3_jit_warm(context, "[1]", &report), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("programs[0]"));
  fa3_context_destroy(context);
}

TEST(Jit, WrongNames_AreRefused) {
  fa3_context* context = nullptr;
  ASSERT_EQ(fa3_context_create(nullptr, &context), FA3_OK);
  const auto refused = [&](const char* const* names, size_t count, const char* says) {
    EXPECT_EQ(fa3_jit_warm_kernels(context, names, count, nullptr), FA3_INVALID_ARGUMENT) << says;
    EXPECT_THAT(fa3_last_error(), HasSubstr(says));
    EXPECT_EQ(fa3_jit_pack_kernels(context, names, count, "/absent/p"), FA3_INVALID_ARGUMENT);
    EXPECT_THAT(fa3_last_error(), HasSubstr(says));
  };
  refused(nullptr, 2, "names is NULL with count=2");
  const char* const with_null[] = {"fwd/d64", nullptr};
  refused(with_null, 2, "names[1] is NULL");
  const char* const unknown[] = {"fwd/d64", "fwd/d63x"};
  refused(unknown, 2, "fwd/d63x");
  const char* const json[] = {"[\"fwd/d64\"]"};
  refused(json, 1, "no kernel has this name");
  EXPECT_EQ(fa3_jit_pack_kernels(context, unknown, 1, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("path is NULL"));
  fa3_context_destroy(context);
}

TEST(Jit, List_SaysWhatThereIs) {
  fa3_context* context = nullptr;
  fa3_context_options options{};
  options.struct_size = sizeof options;
  options.cache_dir = "/dev/null/kernels";  // cannot be created
  options.kernel_pack = "/dev/null/pack";
  ASSERT_EQ(fa3_context_create(&options, &context), FA3_OK);
  const char* report = nullptr;
  ASSERT_EQ(fa3_jit_list(context, &report), FA3_OK) << fa3_last_error();
  const auto list = nlohmann::json::parse(report);
  for (const char* part : {"driver", "nvrtc", "cache", "pack"}) {
    ASSERT_TRUE(list[part]["usable"].is_boolean()) << part;
    EXPECT_NE(list[part]["usable"].get<bool>(), list[part].contains("why")) << part;
  }
  EXPECT_THAT(list["cache"].value("why", ""), HasSubstr("/dev/null/kernels"));
  EXPECT_THAT(list["pack"].value("why", ""), HasSubstr("/dev/null/pack"));
  ASSERT_FALSE(list["programs"].empty());
  for (const auto& program : list["programs"]) EXPECT_TRUE(program["kept"].is_null());
  EXPECT_EQ(fa3_jit_clear(context), FA3_IO_ERROR);
  fa3_context_destroy(context);
}

TEST(Jit, BundledOnly_CompilesNothing) {
  fa3_context* context = nullptr;
  fa3_context_options options{};
  options.struct_size = sizeof options;
  const std::string folder = ::testing::TempDir() + "fa3-bundled-only-" + std::to_string(getpid());
  options.cache_dir = folder.c_str();
  options.kernel_pack = "/absent/pack";
  options.kernel_source = FA3_KERNELS_PACKED;
  ASSERT_EQ(fa3_context_create(&options, &context), FA3_OK);
  EXPECT_EQ(fa3_jit_warm(context, nullptr, nullptr), FA3_IO_ERROR);
  EXPECT_THAT(fa3_last_error(), HasSubstr("/absent/pack"));
  const char* const names[] = {"fwd/d64"};
  EXPECT_EQ(fa3_jit_warm_kernels(context, names, 1, nullptr), FA3_IO_ERROR);
  EXPECT_EQ(fa3_jit_pack_kernels(context, names, 1, "/absent/other"), FA3_JIT_FAILED);
  EXPECT_EQ(fa3_jit_pack(context, nullptr, "/absent/other"), FA3_JIT_FAILED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("bundled kernels only"));
  EXPECT_EQ(fa3_jit_clear(context), FA3_IO_ERROR);
  const char* report = nullptr;
  ASSERT_EQ(fa3_jit_list(context, &report), FA3_OK);
  EXPECT_FALSE(nlohmann::json::parse(report)["cache"]["usable"].get<bool>());
  EXPECT_NE(access(folder.c_str(), F_OK), 0);  // nothing was written
  fa3_context_destroy(context);
}

}  // namespace
