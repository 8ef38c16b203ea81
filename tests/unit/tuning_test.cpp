// SPDX-License-Identifier: BSD-3-Clause
// tuning_test.cpp — rows that a user's file names: which problems it means, what is refused, and
// that a plan follows it where the row can compute the problem.
#include "core/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "args_kit.h"
#include "backend/tuning_file.h"
#include "fwd_plan_kit.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/plan.h"

namespace fa3 {
namespace {

using testing::HasSubstr;

TEST(TuningKey, SaysWhatRowsDependOn) {
  Problem p = sm90::problem(128, 64, 300, 500);
  p.mask = FA3_MASK_CAUSAL;
  EXPECT_EQ(key_of(p), "forward bf16 batch 2 heads 4/2 head_dim 128/64 seqlen 300/500 causal");
  p.mask = FA3_MASK_WINDOW, p.left = 64, p.right = -1;
  p.softcap = 15;
  p.q.seqused = true;
  EXPECT_EQ(key_of(p),
            "forward bf16 batch 2 heads 4/2 head_dim 128/64 seqlen 300 used/500 window 64,-1 "
            "softcap");
}

// Lengths of varlen problems change from call to call: one key for all near by.
TEST(TuningKey, Varlen_IsByMeanLength) {
  Problem p = sm90::problem();
  p.q.varlen = p.kv.varlen = true;
  p.batch = 7;
  p.q.rows = p.kv.rows = 7 * 1100;
  EXPECT_EQ(key_of(p), "forward bf16 batch ~8 heads 4/2 head_dim 128/128 seqlen ~1024/~1024 full");
  const std::string key = key_of(p);
  p.q.rows = p.kv.rows = 7 * 1400;
  EXPECT_EQ(key_of(p), key);
  p.q.rows = 7 * 1500;
  EXPECT_NE(key_of(p), key);
  p.batch = 0, p.q.rows = 0;
  EXPECT_THAT(key_of(p), HasSubstr("batch ~1 "));
}

// Every row that the table has, named for every kind of problem: it is used, or the plan says why
// not and is the one without a tuning.
TEST(Tuning, EveryRow_IsUsedOrDeclined) {
  int used = 0, declined = 0;
  for (const auto& [qk, v] : {std::pair{64, 64}, {72, 80}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      for (const bool alibi : {false, true}) {
        Problem p = sm90::problem(qk, v, 5000, 5000);
        p.mask = mask;
        if (alibi) p.layout[kAlibiSlopes] = {FA3_F32, 0, 0, 1};
        DeviceInfo device = sm90::device();
        const auto by_rule = sm90::make_fwd_plan(p, device);
        ASSERT_TRUE(by_rule.ok()) << by_rule.status().message;
        for (const sm90::FwdRow& row : sm90::kFwdRows) {
          Tuning tuning;
          tuning.rows[key_of(p)] = row.name;
          device.tuning = std::make_shared<Tuning>(tuning);
          const auto made = sm90::make_fwd_plan(p, device);
          ASSERT_TRUE(made.ok()) << row.name << made.status().message;
          const sm90::FwdPlan& plan = made.value();
          if (plan.tuned) {
            ++used;
            EXPECT_STREQ(plan.row, row.name);
            EXPECT_EQ(sm90::why_illegal(plan.config), nullptr) << row.name;
            EXPECT_GE(plan.config.tile.head_dim_qk, qk);
            EXPECT_GE(plan.config.tile.head_dim_v, v);
            EXPECT_EQ(plan.tiles, 8 * div_up(int64_t{5000}, plan.config.tile.q()));
          } else {
            ++declined;
            EXPECT_THAT(plan.declined, HasSubstr(std::string(row.name) + ": "));
            EXPECT_EQ(plan.config, by_rule.value().config) << row.name;
          }
        }
      }
    }
  }
  EXPECT_GT(used, 60);
  EXPECT_GT(declined, 60);
}

TEST(Tuning, NameThatNoRowHas_IsDeclined) {
  const Problem p = sm90::problem();
  DeviceInfo device = sm90::device();
  Tuning tuning;
  tuning.rows[key_of(p)] = "d129";
  device.tuning = std::make_shared<Tuning>(tuning);
  const sm90::FwdPlan plan = sm90::make_fwd_plan(p, device).value();
  EXPECT_FALSE(plan.tuned);
  EXPECT_EQ(plan.declined, "d129: no row of the table is called so");
}

class TuningFile : public testing::Test {
 protected:
  ~TuningFile() override { std::remove(path_.c_str()); }

  Result<std::shared_ptr<const Tuning>> read(const std::string& text) {
    std::ofstream(path_) << text;
    Logger logger;
    logger.fn = [](void* log, fa3_log_level, const char* line) {
      *static_cast<std::string*>(log) += line;
    };
    logger.user = &log_;
    return read_tuning(path_, "Some GPU", logger);
  }

  // Of this process alone: tests run side by side.
  std::string path_ = testing::TempDir() + "fa3-tuning-" + std::to_string(getpid()) + ".json";
  std::string log_;
};

std::string file(const std::string& version, const std::string& gpu, const std::string& problems) {
  return R"({"fa3_tuning": 1, "fa3": ")" + version + R"(", "gpu": ")" + gpu + R"(", "problems": )" +
         problems + "}";
}

TEST_F(TuningFile, Sound_IsRead) {
  const auto read_one =
      read(file(fa3_version(), "Some GPU", R"([{"problem": "p", "row": "d64", "ms": 1.5}])"));
  ASSERT_TRUE(read_one.ok()) << read_one.status().message;
  EXPECT_EQ(read_one.value()->rows, (std::map<std::string, std::string>{{"p", "d64"}}));
  EXPECT_EQ(log_, "");
}

TEST_F(TuningFile, OfAnotherGpuOrVersion_IsLeftAloneWithAWarning) {
  for (const auto& [version, gpu] :
       {std::pair<std::string, std::string>{fa3_version(), "Other GPU"}, {"0.0.1", "Some GPU"}}) {
    for (const char* problems : {"[]", "[7]", R"({"p": "d64"})"}) {
      const auto none = read(file(version, gpu, problems));
      ASSERT_TRUE(none.ok()) << none.status().message;
      EXPECT_EQ(none.value(), nullptr);
      EXPECT_THAT(log_, HasSubstr("is of fa3 " + version + " on " + gpu));
      EXPECT_THAT(log_, HasSubstr("fa3 tune"));
      log_.clear();
    }
  }
}

TEST_F(TuningFile, Broken_IsRefused) {
  const std::string ours = fa3_version();
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"", "is not a tuning file"},
           {"[1]", "is not a tuning file"},
           {"{\"gpu\": 3}", "is not a tuning file"},
           {R"({"fa3_tuning": 2, "fa3": ")" + ours + R"(", "gpu": "Some GPU", "problems": []})",
            "fa3_tuning is 2"},
           {R"({"fa3_tuning": 1, "fa3": ")" + ours + R"(", "gpu": "Some GPU"})",
            "need an array problems"},
           {file(ours, "Some GPU", "{}"), "is not a tuning file"},
           {file(ours, "Some GPU", "[7]"), "problems[0] lacks"},
           {file(ours, "Some GPU", R"([{"problem": "p", "row": 3}])"), "problems[0] lacks"}}) {
    test::expect_refusal(read(text).status(), FA3_INVALID_ARGUMENT,
                         {"FA3_TUNING=" + path_, says, "fa3 tune"});
  }
  const Result<std::shared_ptr<const Tuning>> absent = read_tuning("/absent", "g", {});
  test::expect_refusal(absent.status(), FA3_INVALID_ARGUMENT, {"/absent", "cannot be opened"});
  test::expect_refusal(read_tuning("/", "g", {}).status(), FA3_INVALID_ARGUMENT, {"FA3_TUNING=/"});
}

}  // namespace
}  // namespace fa3
