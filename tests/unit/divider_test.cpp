// SPDX-License-Identifier: BSD-3-Clause
// divider_test.cpp — quotients by products.
#include "device/divider.h"

#include <gtest/gtest.h>

#include <climits>
#include <random>

namespace fa3 {
namespace {

void expect_right(u32 divisor, i32 x) {
  const Divider d = Divider::by(divisor);
  EXPECT_EQ(d.quotient(x), x / static_cast<i32>(divisor)) << x << " / " << divisor;
  EXPECT_EQ(d.remainder(x), x % static_cast<i32>(divisor)) << x << " % " << divisor;
}

TEST(Divider, IsRightAroundMultiples) {
  std::mt19937 random(1);
  for (u32 divisor = 1; divisor <= 300; ++divisor) {
    for (int i = 0; i < 100; ++i) {
      const i32 last = INT_MAX / static_cast<i32>(divisor);
      const i32 multiple = static_cast<i32>(random() % static_cast<u32>(last)) + 1;
      for (const i32 off : {-1, 0})
        expect_right(divisor, multiple * static_cast<i32>(divisor) + off);
    }
    for (const i32 x : {0, 1, INT_MAX - 1, INT_MAX}) expect_right(divisor, x);
  }
}

TEST(Divider, IsRightForLargeOnes) {
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i)
    expect_right(random() % (u32{INT_MAX} >> i % 30) + 1, static_cast<i32>(random() >> 1));
  for (const u32 divisor :
       {u32{INT_MAX}, u32{INT_MAX} - 1, (1u << 30) + 1, 1u << 30, (1u << 30) - 1})
    for (const i32 x : {0, 1, 1 << 30, (1 << 30) - 1, INT_MAX - 1, INT_MAX})
      expect_right(divisor, x);
}

}  // namespace
}  // namespace fa3
