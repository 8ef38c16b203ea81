// SPDX-License-Identifier: BSD-3-Clause
// v_image_test.cpp — V that is quantised into the image that Hopper's forward kernel loads, in the
// simulator: the same bits as from the codes, which are not read; other tiles are refused.
#include <gmock/gmock.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/kit/quantize_call.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using Call = kit::QuantizeCall;

// fa3_plan_v_image of a plan that is made for it.
struct Image {
  fa3_tensor tensor{};
  int32_t layout = -1;
  std::vector<uint8_t> bytes;

  template <class Args>
  void ask(fa3_status (*plan_of)(fa3_context*, const Args*, fa3_plan**), fa3_context* context,
           const Args& args) {
    fa3_plan* plan = nullptr;
    ASSERT_EQ(plan_of(context, &args, &plan), FA3_OK) << fa3_last_error();
    ASSERT_EQ(fa3_plan_v_image(plan, &tensor, &layout), FA3_OK) << fa3_last_error();
    fa3_plan_destroy(plan);
    const int64_t size = std::accumulate(tensor.shape, tensor.shape + tensor.rank, int64_t{1},
                                         std::multiplies<int64_t>());
    bytes.assign(static_cast<size_t>(tensor.rank == 0 ? 0 : size), 0x7f);
    tensor.data = bytes.data();
  }
};

// V of a forward and the call that quantises it.
struct Case {
  Call call;
  verify::Config config;
  verify::Tensors tensors;

  Case(int64_t head_dim, int64_t queries, bool varlen) {
    call.batch = 2, call.heads = 1, call.seqlen = varlen ? 470 : 300, call.dim = head_dim;
    call.in = FA3_BF16, call.scales = Call::kHead;
    if (varlen) call.cu = {0, 290, 460};
    call.fill();
    config.dtype = FA3_F8_E4M3;
    config.out_dtype = FA3_BF16;
    config.batch = 2, config.heads_q = 2, config.heads_kv = 1;
    config.head_dim_qk = config.head_dim_v = head_dim;
    config.seqlen_q = queries, config.seqlen_kv = 300;
    if (varlen) {
      config.varlen_q = {queries, queries / 2}, config.varlen_kv = {290, 170};
      config.spare_kv = 10;
    }
    config.alignment = 16;
    tensors = verify::make_tensors(config);
  }

  fa3_forward_args forward_args() {
    fa3_forward_args args = verify::forward_args(config, tensors);
    args.v.data = call.codes.data();
    args.v_scale.data = call.scale.data();
    return args;
  }
  // Of a forward with as many queries.
  Image image_of_forward(int64_t queries) {
    fa3_forward_args args = forward_args();
    for (fa3_tensor* const t : {&args.q, &args.o}) {
      std::vector<int64_t> shape(t->shape, t->shape + t->rank);
      shape[shape.size() - 3] = queries;
      *t = fa3_dense(nullptr, fa3_dtype(t->dtype), t->rank, shape.data());
    }
    args.lse = {};
    Image image;
    image.ask(fa3_plan_forward, simulator(), args);
    return image;
  }
  void quantize(fa3_context* context, Call& with, const Image& image) {
    fa3_quantize_args args = with.args();
    args.v_image = image.tensor, args.v_image_layout = image.layout;
    EXPECT_EQ(fa3_quantize(context, &args, nullptr), FA3_OK) << fa3_last_error();
  }
  std::vector<uint8_t> run(const fa3_forward_args& args) {
    EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    std::vector<uint8_t> bits;
    verify::for_each_row(args.o, [&](const verify::Index&, void* row) {
      const auto* const first = static_cast<const uint8_t*>(row);
      bits.insert(bits.end(), first, first + 2 * args.o.shape[args.o.rank - 1]);
    });
    return bits;
  }
};

class SimVImage : public testing::TestWithParam<bool> {};

TEST_P(SimVImage, SameBits_WithoutV) {
  if (kit::kSanitized) GTEST_SKIP() << "the simulator has one head dim";
  Case c(128, 2100, GetParam());  // as many queries as take a row with images
  Image image = c.image_of_forward(GetParam() ? 3150 : 2100), by_cpu = image;
  ASSERT_EQ(image.layout, FA3_V_IMAGE_SM90);
  ASSERT_EQ(image.tensor.shape[image.tensor.rank - 1], 128);
  by_cpu.tensor.data = by_cpu.bytes.data();
  Call cpu = c.call;
  c.quantize(simulator(), c.call, image);
  c.quantize(kit::make_context().get(), cpu, by_cpu);
  const auto differ = [](const auto& a, const auto& b) {
    size_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
    return count;
  };
  EXPECT_EQ(differ(image.bytes, by_cpu.bytes), differ(c.call.codes, cpu.codes));
  const fa3_forward_args args = c.forward_args();
  const std::vector<uint8_t> from_codes = c.run(args);
  fa3_forward_args with = args;
  with.v_image = image.tensor, with.v_image_layout = image.layout;
  std::fill(c.call.codes.begin(), c.call.codes.end(), uint8_t{0x7f});  // NaN
  EXPECT_EQ(c.run(with), from_codes);
}
INSTANTIATE_TEST_SUITE_P(Varlen, SimVImage, testing::Bool());

// An image that was made for a prompt, read by few queries.
TEST(SimVImageRows, FewQueries_TakeTheImagesRow) {
  Case c(64, 70, false);
  Image image = c.image_of_forward(5000);
  ASSERT_EQ(image.layout, FA3_V_IMAGE_SM90);
  c.quantize(simulator(), c.call, image);
  fa3_forward_args args = c.forward_args();
  args.v_image = image.tensor, args.v_image_layout = image.layout;
  c.run(args);
  for (const verify::OutputResult& r : verify::compare_forward(args))
    EXPECT_TRUE(r.ok) << to_text(r);
}

TEST(SimVImageRows, PlanForThis_SaysItsShape) {
  Case c(64, 70, false);
  Image image = c.image_of_forward(5000), written;
  fa3_quantize_args quantize = c.call.args();
  quantize.v_image = image.tensor, quantize.v_image_layout = image.layout;
  written.ask(fa3_plan_quantize, simulator(), quantize);
  EXPECT_EQ(written.bytes.size(), image.bytes.size());
  EXPECT_EQ(written.layout, image.layout);
}

// Rows of the forward's table have tiles of their own.
TEST(SimVImageRefusals, OtherTiles_NameBoth) {
  Case c(64, 70, false);
  c.call.args();
  Image image = c.image_of_forward(5000);
  fa3_forward_args args = c.forward_args();
  args.v_image_layout = image.layout;
  const int64_t shape[5] = {2, 1, 5, 64, 64};
  args.v_image = fa3_dense(image.bytes.data(), FA3_F8_E4M3, 5, shape);
  EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("v_image has tiles of 64 keys and 64 columns, but row"));
  EXPECT_THAT(fa3_last_error(), HasSubstr("fa3_plan_v_image"));
  fa3_quantize_args quantize = c.call.args();
  quantize.v_image = args.v_image, quantize.v_image_layout = FA3_V_IMAGE_SM90;
  EXPECT_EQ(fa3_quantize(simulator(), &quantize, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("v_image with tiles of 64 keys and 64 columns"));
}

// Short queries take a kernel that transposes V itself, unless there is an image.
TEST(SimVImageRefusals, PlanThatTransposes_HasNone) {
  Case c(64, 70, false);
  c.call.args();
  const fa3_forward_args args = c.forward_args();
  Image image;
  image.ask(fa3_plan_forward, simulator(), args);
  EXPECT_EQ(image.tensor.rank, 0);
  EXPECT_EQ(image.layout, FA3_V_IMAGE_NONE);
}

}  // namespace
}  // namespace fa3
