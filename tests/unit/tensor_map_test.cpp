// SPDX-License-Identifier: BSD-3-Clause
// tensor_map_test.cpp — each rule of a tensor map: the last legal value, the first illegal one and
// what the refusal says.
#include "core/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace fa3 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

alignas(128) char memory[256];

// A (batch 2, seqlen 100, heads 3, head_dim 64) bf16 tensor, tiles of 128 rows.
TensorMapSpec legal() {
  TensorMapSpec spec;
  spec.name = "k";
  spec.base = memory;
  spec.rank = 4;
  const u64 dim[] = {64, 100, 3, 2};
  const u64 stride[] = {0, 384, 128, 38400};
  const u32 box[] = {64, 128, 1, 1};
  for (int i = 0; i < 4; ++i) {
    spec.dim[i] = dim[i];
    spec.stride_bytes[i] = stride[i];
    spec.box[i] = box[i];
  }
  spec.swizzle = Swizzle::k128;
  return spec;
}

struct Case {
  const char* field;
  std::function<void(TensorMapSpec&)> last_legal, first_illegal;
  const char* value;  // what the refusal must quote
  const char* limit;
};

const Case kCases[] = {
    {"base", [](auto& s) { s.base = memory + 16; }, [](auto& s) { s.base = memory + 8; }, "8 bytes",
     "multiple of 16"},
    {"base", [](auto& s) { s.base = memory; }, [](auto& s) { s.base = nullptr; }, "NULL",
     "device memory"},
    {"rank", [](auto& s) { s.rank = 1; }, [](auto& s) { s.rank = 0; }, "=0", "1…5"},
    {"rank", [](auto& s) { s.rank = 5, s.dim[4] = s.box[4] = 1; }, [](auto& s) { s.rank = 6; },
     "=6", "1…5"},
    {"dim[1]", [](auto& s) { s.dim[1] = 1; }, [](auto& s) { s.dim[1] = 0; }, "=0", "empty"},
    {"dim[3]", [](auto& s) { s.dim[3] = u64{1} << 32; },
     [](auto& s) { s.dim[3] = (u64{1} << 32) + 1; }, "=4294967297", "2^32"},
    {"stride_bytes[1]", [](auto& s) { s.stride_bytes[1] = 0; },
     [](auto& s) { s.stride_bytes[1] = 392; }, "=392", "multiple of 16"},
    {"stride_bytes[3]", [](auto& s) { s.stride_bytes[3] = (u64{1} << 40) - 16; },
     [](auto& s) { s.stride_bytes[3] = u64{1} << 40; }, "=1099511627776", "2^40"},
    {"box[2]", [](auto& s) { s.box[2] = 1; }, [](auto& s) { s.box[2] = 0; }, "=0", "1…256"},
    {"box={64, 256, 8, 1}", [](auto& s) { s.box[1] = 256, s.box[2] = 7; },
     [](auto& s) { s.box[1] = 256, s.box[2] = 8; }, "262144 bytes", "at most 232448"},
    {"box[1]", [](auto& s) { s.box[1] = 256; }, [](auto& s) { s.box[1] = 257; }, "=257", "1…256"},
    {"box[0]", [](auto& s) { s.box[0] = 8; }, [](auto& s) { s.box[0] = 12; }, "24 bytes",
     "multiple of 16"},
    {"box[0]", [](auto& s) { s.box[0] = 16, s.swizzle = Swizzle::k32; },
     [](auto& s) { s.box[0] = 24, s.swizzle = Swizzle::k32; }, "48 bytes", "at most 32"},
    {"box[0]", [](auto& s) { s.box[0] = 32, s.swizzle = Swizzle::k64; },
     [](auto& s) { s.box[0] = 40, s.swizzle = Swizzle::k64; }, "80 bytes", "at most 64"},
    {"box[0]", [](auto& s) { s.box[0] = 256, s.swizzle = Swizzle::kNone; },
     [](auto& s) { s.box[0] = 72; }, "144 bytes", "at most 128"},
    {"element_stride[0]", [](auto& s) { s.element_stride[0] = 8; },
     [](auto& s) { s.element_stride[0] = 9; }, "=9", "1…8"},
    {"element_stride[3]", [](auto& s) { s.element_stride[3] = 2; },
     [](auto& s) { s.element_stride[3] = 0; }, "=0", "1…8"},
    {"nan_fill", [](auto& s) { s.nan_fill = true; },
     [](auto& s) { s.nan_fill = true, s.type = TmaType::kU16; }, "u16", "bf16"},
    {"type", [](auto& s) { s.type = TmaType::kU16; }, [](auto& s) { s.type = TmaType(8); }, "=8",
     "TmaType"},
    {"swizzle", [](auto& s) { s.swizzle = Swizzle::kNone; },
     [](auto& s) { s.swizzle = Swizzle(16); }, "=16", "128"},
};

TEST(TensorMap, Rules_HoldUpToTheirLimits) {
  for (const Case& c : kCases) {
    TensorMapSpec spec = legal();
    c.last_legal(spec);
    const Status status = check_tensor_map(spec);
    EXPECT_TRUE(status.ok()) << c.field << ": " << status.message;
  }
}

TEST(TensorMap, Refusals_NameFieldValueAndLimit) {
  for (const Case& c : kCases) {
    TensorMapSpec spec = legal();
    c.first_illegal(spec);
    const Status status = check_tensor_map(spec);
    EXPECT_EQ(status.code, FA3_INVALID_ARGUMENT) << c.field;
    EXPECT_THAT(status.message, AllOf(HasSubstr(std::string("tensor map k: ") + c.field),
                                      HasSubstr(c.value), HasSubstr(c.limit)));
  }
}

TEST(TensorMap, Refusal_PrintsEveryField) {
  TensorMapSpec spec = legal();
  spec.box[1] = 300;
  EXPECT_THAT(
      check_tensor_map(spec).message,
      AllOf(HasSubstr("name=k"), HasSubstr("type=bf16"), HasSubstr("rank=4"),
            HasSubstr("dim={64, 100, 3, 2}"), HasSubstr("stride_bytes[1…]={384, 128, 38400}"),
            HasSubstr("box={64, 300, 1, 1}"), HasSubstr("element_stride={1, 1, 1, 1}"),
            HasSubstr("swizzle=128"), HasSubstr("nan_fill=false"),
            HasSubstr(fmt::format("base={}", static_cast<void*>(memory)))));
}

// Entries that the driver does not read may hold anything.
TEST(TensorMap, UnreadEntries_DoNotMatter) {
  TensorMapSpec spec = legal();
  spec.stride_bytes[0] = 3;
  spec.dim[4] = 0;
  spec.element_stride[4] = 0;
  EXPECT_TRUE(check_tensor_map(spec).ok());
}

}  // namespace
}  // namespace fa3
