// SPDX-License-Identifier: BSD-3-Clause
// capi_context_test.cpp — contexts, their options and callbacks, and what the library says.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "capi_kit.h"

namespace fa3_test {
namespace {

TEST(Context, OptionsRefused_ByNameAndValue) {
  const auto refuse = [](fa3_status status, const std::vector<std::string>& parts, auto change) {
    fa3_context_options options = fa3::context_options();
    change(options);
    expect_error(status, parts, [&] { fa3::Context context(options); });
  };
  refuse(FA3_INVALID_ARGUMENT, {"backend=9"}, [](auto& o) { o.backend = 9; });
  refuse(FA3_INVALID_ARGUMENT, {"FA3_BACKEND_CUDA (3)", "FA3_DEVICE_CUDA (2)"},
         [](auto& o) { o.backend = FA3_BACKEND_CUDA; });
  refuse(FA3_INVALID_ARGUMENT, {"device_type=7"}, [](auto& o) { o.device_type = 7; });
  refuse(FA3_INVALID_ARGUMENT, {"backend=1 (cpu)", "FA3_DEVICE_CUDA"}, [](auto& o) {
    o.device_type = FA3_DEVICE_CUDA;
    o.backend = FA3_BACKEND_CPU;
  });
  refuse(FA3_INVALID_ARGUMENT, {"device_id=1"}, [](auto& o) { o.device_id = 1; });
  refuse(FA3_INVALID_ARGUMENT, {"num_threads=-1"}, [](auto& o) { o.num_threads = -1; });
  refuse(FA3_INVALID_ARGUMENT, {"num_threads=1025", "1024"}, [](auto& o) { o.num_threads = 1025; });
  refuse(FA3_INVALID_ARGUMENT, {"log_level=5"}, [](auto& o) { o.log_level = 5; });
  refuse(FA3_INVALID_ARGUMENT, {"kernel_source=2"}, [](auto& o) { o.kernel_source = 2; });
  refuse(FA3_INVALID_ARGUMENT, {"cache_dir='cache'", "absolute"},
         [](auto& o) { o.cache_dir = "cache"; });
  refuse(FA3_INVALID_ARGUMENT, {"kernel_pack=''", "absolute"}, [](auto& o) { o.kernel_pack = ""; });
  refuse(FA3_INVALID_ARGUMENT, {"struct_size=0"}, [](auto& o) { o.struct_size = 0; });
  refuse(FA3_INVALID_ARGUMENT, {"struct_size=87", "88"}, [](auto& o) { o.struct_size = 87; });
  EXPECT_EQ(fa3_context_create(nullptr, nullptr), FA3_INVALID_ARGUMENT);
}

TEST(Context, NoOptions_AllDefaults) {
  fa3_context* context = nullptr;
  ASSERT_EQ(fa3_context_create(nullptr, &context), FA3_OK);
  fa3_device_info info = {};
  info.struct_size = sizeof info;
  EXPECT_EQ(fa3_get_device_info(context, &info), FA3_OK);
  EXPECT_EQ(info.backend, FA3_BACKEND_CPU);
  EXPECT_EQ(info.device_type, FA3_DEVICE_CPU);
  EXPECT_GE(info.num_threads, 1);
  EXPECT_STRNE(info.name, "");
  EXPECT_STRNE(info.instruction_set, "");
  fa3_context_destroy(context);
}

TEST(Context, Environment_CapsAndIsChecked) {
  setenv("FA3_NUM_THREADS", "3", 1);
  setenv("FA3_SIMD", "scalar", 1);
  EXPECT_EQ(fa3::Context().device_info().num_threads, 3);
  EXPECT_STREQ(fa3::Context().device_info().instruction_set, "scalar");
  EXPECT_EQ(open_context(FA3_BACKEND_CPU, 2).device_info().num_threads, 2) << "options come first";
  setenv("FA3_NUM_THREADS", "many", 1);
  expect_error(FA3_INVALID_ARGUMENT, {"FA3_NUM_THREADS=many"}, [] { fa3::Context context; });
  EXPECT_EQ(Json::parse(fa3_environment())[0]["value"], "many");
  unsetenv("FA3_NUM_THREADS");
  unsetenv("FA3_SIMD");
  EXPECT_TRUE(Json::parse(fa3_environment())[0]["value"].is_null());
}

TEST(Context, ParallelForOfTheHost_DoesAllWork) {
  struct Pool {
    std::atomic<int64_t> calls{0};
    static void run(void* self, int64_t count, void (*body)(void*, int64_t), void* context) {
      static_cast<Pool*>(self)->calls += count;
      std::vector<std::thread> threads;
      for (int64_t i = 0; i < count; ++i) threads.emplace_back(body, context, i);
      for (std::thread& thread : threads) thread.join();
    }
  } pool;
  fa3_context_options options = fa3::context_options();
  options.num_threads = 3;
  options.parallel_for = Pool::run;
  options.parallel_for_user = &pool;
  Dense x(70, 300), expected(70, 300);
  fa3::Context(options).forward(x.forward());
  open_context(FA3_BACKEND_CPU).forward(expected.forward());
  EXPECT_GT(pool.calls, 0);
  EXPECT_EQ(x.o, expected.o);
}

TEST(Context, Progress_ReportsAndCancels) {
  struct Progress {
    int64_t last = 0, total = 0, stop_at = INT64_MAX;
    static int report(void* self, int64_t done, int64_t total) {
      auto& progress = *static_cast<Progress*>(self);
      EXPECT_GT(done, progress.last);
      EXPECT_LE(done, total);
      progress.last = done;
      progress.total = total;
      return done >= progress.stop_at;
    }
  };
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    Progress progress;
    fa3_context_options options = fa3::context_options();
    options.backend = backend;
    options.progress = Progress::report;
    options.progress_user = &progress;
    const fa3::Context context(options);
    Dense x;
    context.forward(x.forward());
    EXPECT_GT(progress.total, 0);
    EXPECT_EQ(progress.last, progress.total) << "ends at the total";
    progress = {};
    context.backward(x.backward());
    EXPECT_EQ(progress.last, progress.total);
    progress = {};
    progress.stop_at = 1;
    expect_error(FA3_CANCELLED, {"progress callback"}, [&] { context.forward(x.forward()); });
    progress = {};
    context.forward(x.forward());
    EXPECT_EQ(progress.last, progress.total) << "a cancelled run leaves nothing behind";
  }
}

TEST(Context, Log_LinesUpToItsLevel) {
  std::vector<std::string> lines;
  fa3_context_options options = fa3::context_options();
  options.log = [](void* user, fa3_log_level, const char* line) {
    static_cast<std::vector<std::string>*>(user)->push_back(line);
  };
  options.log_user = &lines;
  fa3::Context quiet(options);
  EXPECT_TRUE(lines.empty()) << "warnings only by default";
  options.log_level = FA3_LOG_DEBUG;
  const fa3::Context context(options);
  Dense x;
  const fa3::Plan plan = context.plan(x.forward());
  EXPECT_THAT(lines, testing::Contains(HasSubstr("backend cpu")));
  EXPECT_THAT(lines, Each(testing::Not(HasSubstr("\n"))));
}

TEST(Supported, ReasonEitherWay) {
  const fa3::Context context;
  Dense x;
  std::string reason;
  EXPECT_TRUE(context.supported(x.forward(), &reason));
  EXPECT_THAT(reason, HasSubstr("backend cpu"));
  EXPECT_TRUE(open_context(FA3_BACKEND_REFERENCE).supported(x.backward(), &reason));
  EXPECT_THAT(reason, HasSubstr("backend reference"));
  fa3_forward_args args = x.forward();
  args.q.dtype = FA3_F8_E5M2;
  EXPECT_EQ(fa3_supported(context.get(), FA3_OP_FORWARD, &args, nullptr), FA3_UNSUPPORTED);
  EXPECT_FALSE(context.supported(args, &reason));
  EXPECT_THAT(reason, HasSubstr("q.dtype=f8_e5m2"));
  EXPECT_EQ(fa3_supported(context.get(), static_cast<fa3_op>(0), &args, nullptr),
            FA3_INVALID_ARGUMENT);
}

TEST(Explain, Json_WithTheDocumentedKeys) {
  Dense x(70, 300);
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    for (const std::string& text : {context.explain(x.forward()), context.explain(x.backward())}) {
      const Json json = Json::parse(text);
      for (const char* key : {"backend", "why", "problem", "threads", "workspace_bytes", "flops"}) {
        EXPECT_TRUE(json.contains(key)) << key;
      }
      EXPECT_EQ(json["problem"]["seqlen_kv"], 300);
      if (backend == FA3_BACKEND_CPU) {
        for (const char* key : {"tile_q", "tile_kv", "tasks", "tiles_visited", "tiles_skipped"}) {
          EXPECT_TRUE(json["cpu"].contains(key)) << key;
        }
      }
    }
  }
  const Json json = Json::parse(open_context(FA3_BACKEND_CPU).explain(x.forward()));
  int64_t pairs = 0;
  for (int64_t i = 0; i < 70; ++i) pairs += i + 300 - 70 + 1;
  EXPECT_EQ(json["flops"], 2 * pairs * x.kBatch * x.kHeadsQ * (x.kDimQk + x.kDimV));
}

TEST(Explain, SlopesAndIds_AreNamed) {
  Dense x;
  fa3_forward_args args = x.forward();
  const float slopes[Dense::kHeadsQ] = {};
  const std::vector<int32_t> ids(Dense::kBatch * 7, 1);
  args.alibi_slopes = fa3::tensor(slopes, {Dense::kHeadsQ});
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    args.sequence_ids_q = args.sequence_ids_kv = {};
    Json json = Json::parse(context.explain(args));
    EXPECT_EQ(json["problem"]["alibi_slopes"]["stride_head"], 1);
    EXPECT_TRUE(json["problem"]["sequence_ids_q"].is_null());
    EXPECT_EQ(json["flops_exact"], true);
    args.sequence_ids_q = fa3::tensor(ids.data(), {Dense::kBatch, x.len_q});
    std::string reason;
    EXPECT_FALSE(context.supported(args, &reason));
    EXPECT_THAT(reason, HasSubstr("sequence_ids_kv is absent"));
    args.sequence_ids_kv = fa3::tensor(ids.data(), {Dense::kBatch, x.len_kv});
    EXPECT_TRUE(context.supported(args));
    json = Json::parse(context.explain(args));
    EXPECT_EQ(json["problem"]["sequence_ids_kv"]["stride_batch"], 7);
    EXPECT_EQ(json["flops_exact"], false) << "ids are data";
  }
}

TEST(Explain, Capacity) {
  const fa3::Context context;
  Dense x;
  const fa3_forward_args args = x.forward();
  size_t needed = 0;
  ASSERT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, nullptr, 0, &needed), FA3_OK);
  std::vector<char> text(needed, 'x');
  EXPECT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, text.data(), needed - 1, nullptr),
            FA3_INVALID_ARGUMENT);
  EXPECT_STREQ(text.data(), "");
  EXPECT_EQ(text[1], 'x');
  EXPECT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, text.data(), needed, nullptr),
            FA3_OK);
  EXPECT_EQ(std::strlen(text.data()) + 1, needed);
  EXPECT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, nullptr, 5, nullptr),
            FA3_INVALID_ARGUMENT);
}

TEST(Info, DeviceInfo_OfOtherSizes) {
  const fa3::Context context;
  struct {
    fa3_device_info known;
    unsigned char added[16];
  } newer;
  std::memset(&newer, 0x5a, sizeof newer);
  newer.known.struct_size = sizeof newer;
  ASSERT_EQ(fa3_get_device_info(context.get(), &newer.known), FA3_OK);
  EXPECT_EQ(newer.known.struct_size, sizeof newer);
  EXPECT_THAT(newer.added, Each(0x5a));
  newer.known.struct_size = 100;
  EXPECT_EQ(fa3_get_device_info(context.get(), &newer.known), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("struct_size=100"));
  EXPECT_EQ(fa3_get_device_info(context.get(), nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(fa3_get_device_info(nullptr, &newer.known), FA3_INVALID_ARGUMENT);
}

TEST(Info, BuildAndVersion) {
  EXPECT_STREQ(fa3_version(),
               (std::to_string(FA3_VERSION_MAJOR) + "." + std::to_string(FA3_VERSION_MINOR) + "." +
                std::to_string(FA3_VERSION_PATCH))
                   .c_str());
  const Json build = Json::parse(fa3_build_info());
  EXPECT_EQ(build["version"], fa3_version());
  EXPECT_EQ(build["backends"].size(), 4u);
  for (const Json& backend : build["backends"]) EXPECT_FALSE(backend["why"].empty());
  EXPECT_STREQ(fa3_status_name(FA3_CANCELLED), "CANCELLED");
  EXPECT_STREQ(fa3_status_name(static_cast<fa3_status>(15)), "UNKNOWN");
}

TEST(LastError, IsOfThisThread_AndStaysUntilTheNext) {
  std::thread([] {
    EXPECT_STREQ(fa3_last_error(), "");
    EXPECT_EQ(fa3_context_create(nullptr, nullptr), FA3_INVALID_ARGUMENT);
    EXPECT_STRNE(fa3_last_error(), "");
    const std::string message = fa3_last_error();
    fa3::Context context;
    EXPECT_EQ(message, fa3_last_error()) << "a call that succeeds leaves it";
    std::thread([] { EXPECT_STREQ(fa3_last_error(), ""); }).join();
  }).join();
}

TEST(Hpp, Tensor_ChecksItsLists) {
  float x = 0;
  expect_error(FA3_INVALID_ARGUMENT, {"6 extents"}, [&] {
    (void)fa3::tensor(&x, {1, 1, 1, 1, 1, 1});
  });
  expect_error(FA3_INVALID_ARGUMENT, {"2 extents and 1 strides"}, [&] {
    (void)fa3::tensor(&x, {1, 1}, {1});
  });
  const int32_t n = 0;
  EXPECT_EQ(fa3::tensor(&n, {1}).dtype, FA3_I32);
  EXPECT_EQ(fa3::tensor(&x, {1}).dtype, FA3_F32);
}

TEST(Dense, Strides_AreRowMajor) {
  const int64_t shape[] = {2, 3, 0, 5, 7};
  const fa3_tensor t = fa3_dense(shape, FA3_BF16, 5, shape);
  EXPECT_EQ(t.data, shape);
  EXPECT_EQ(t.dtype, FA3_BF16);
  EXPECT_EQ(t.rank, 5);
  EXPECT_THAT(t.shape, testing::ElementsAre(2, 3, 0, 5, 7));
  EXPECT_THAT(t.stride, testing::ElementsAre(105, 35, 35, 7, 1)) << "an extent of 0 counts as 1";
  const fa3_tensor same = fa3::tensor(shape, FA3_BF16, {2, 3, 0, 5, 7});
  EXPECT_THAT(same.stride, testing::ElementsAreArray(t.stride));
}

// It has no way to refuse: the call that takes the tensor does.
TEST(Dense, WrongRankOrExtent_RefusedByTheCall) {
  const int64_t shape[9] = {INT64_MAX, INT64_MAX, -1, 4, 8, 3, 3, 3, 3};
  const fa3::Context context;
  Dense x;
  fa3_forward_args args = x.forward();
  for (const int32_t rank : {9, -1, INT32_MAX, INT32_MIN}) {
    args.q = fa3_dense(x.q.data(), FA3_F32, rank, shape);
    expect_error(FA3_INVALID_ARGUMENT, {"q.rank=" + std::to_string(rank)},
                 [&] { context.forward(args); });
  }
  args.q = fa3_dense(x.q.data(), FA3_F32, 4, shape);
  expect_error(FA3_INVALID_ARGUMENT, {"q.shape[2]=-1"}, [&] { context.forward(args); });
  args.q = fa3_dense(x.q.data(), FA3_F32, 2, shape);
  expect_error(FA3_INVALID_ARGUMENT, {"2^63"}, [&] { context.forward(args); });
}

TEST(Hpp, Stream_IsHandedOn) {
  const fa3::Context context;
  Dense x;
  int stream = 0;  // the CPU has none
  const auto refused = [&](const auto& call) {
    expect_error(FA3_INVALID_ARGUMENT, {"stream"}, call);
  };
  refused([&] { context.forward(x.forward(), &stream); });
  refused([&] { context.backward(x.backward(), &stream); });
  const fa3::Plan forward = context.plan(x.forward()), backward = context.plan(x.backward());
  std::vector<std::byte> workspace(std::max(forward.workspace_bytes(), backward.workspace_bytes()));
  refused([&] { forward.run(x.forward(), workspace.data(), workspace.size(), &stream); });
  refused([&] { backward.run(x.backward(), workspace.data(), workspace.size(), &stream); });
}

TEST(Hpp, GpuOptions_NameTheDevice) {
  const fa3_context_options options = fa3::gpu_options(3);
  EXPECT_EQ(options.struct_size, sizeof options);
  EXPECT_EQ(options.device_type, FA3_DEVICE_CUDA);
  EXPECT_EQ(options.device_id, 3);
  EXPECT_EQ(fa3::gpu_options().device_id, 0);
}

}  // namespace
}  // namespace fa3_test
