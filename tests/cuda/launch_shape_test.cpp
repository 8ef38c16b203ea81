// SPDX-License-Identifier: BSD-3-Clause
// launch_shape_test.cpp — each limit of a launch: the last legal value and the first illegal one.
#include "runtime/launch_shape.h"

#include "kit.h"

namespace fa3 {
namespace {

struct Case {
  std::function<void(LaunchShape&, size_t&)> last_legal, first_illegal;
  std::vector<std::string> says;
};

const Case kCases[] = {
    {[](auto& s, auto&) { s.grid[0] = 0x7fffffff; },
     [](auto& s, auto&) { s.grid[0] = 1u << 31; },
     {"grid[0]=2147483648", "1…2147483647"}},
    {[](auto& s, auto&) { s.grid[1] = 65535; },
     [](auto& s, auto&) { s.grid[1] = 65536; },
     {"grid[1]=65536", "1…65535"}},
    {[](auto& s, auto&) { s.grid[2] = 1; },
     [](auto& s, auto&) { s.grid[2] = 0; },
     {"grid[2]=0", "empty grid"}},
    {[](auto& s, auto&) { s.threads = 1024; },
     [](auto& s, auto&) { s.threads = 1025; },
     {"threads=1025", "1…1024"}},
    {[](auto& s, auto&) { s.threads = 1; },
     [](auto& s, auto&) { s.threads = 0; },
     {"threads=0", "1…1024"}},
    {[](auto& s, auto&) { s.smem_bytes = 232448; },
     [](auto& s, auto&) { s.smem_bytes = 232449; },
     {"smem_bytes=232449", "at most 232448"}},
    {[](auto& s, auto&) { s.cluster = s.grid[0] = 16; },
     [](auto& s, auto&) { s.cluster = s.grid[0] = 17; },
     {"cluster=17", "1…16"}},
    {[](auto& s, auto&) { s.cluster = 1; },
     [](auto& s, auto&) { s.cluster = 0; },
     {"cluster=0", "1…16"}},
    {[](auto& s, auto&) { s.cluster = 2, s.grid[0] = 6; },
     [](auto& s, auto&) { s.cluster = 2, s.grid[0] = 7; },
     {"grid[0]=7", "cluster=2"}},
    {[](auto&, auto& args) { args = 32764; },
     [](auto&, auto& args) { args = 32765; },
     {"args_bytes=32765", "1…32764"}},
    {[](auto&, auto& args) { args = 1; },
     [](auto&, auto& args) { args = 0; },
     {"args_bytes=0", "1…32764"}},
};

TEST(LaunchShape, Limits) {
  const Program program{"device/x.h", "fa3::x<1>", kHopperArch};
  for (const Case& c : kCases) {
    LaunchShape shape;
    shape.threads = 128;
    size_t args_bytes = 8;
    c.last_legal(shape, args_bytes);
    const Status status = check_launch(program, shape, args_bytes);
    EXPECT_TRUE(status.ok()) << status.message;
    c.first_illegal(shape, args_bytes);
    cuda::test::expect_refusal(check_launch(program, shape, args_bytes), FA3_INVALID_ARGUMENT,
                               c.says);
    EXPECT_THAT(check_launch(program, shape, args_bytes).message,
                ::testing::HasSubstr("fa3::x<1>"));
  }
}

}  // namespace
}  // namespace fa3
