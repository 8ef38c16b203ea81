// SPDX-License-Identifier: BSD-3-Clause
// memory_test.cpp — workspace bounds, 131,072 tokens, and tensors whose offsets exceed 32 bits.
#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/kit/context.h"
#include "tests/kit/property.h"
#include "tests/kit/run.h"

namespace fa3 {
namespace {

using verify::Config;

// ---- Workspace bounds ------------------------------------------------------------------------

fa3_tensor shape_only(int32_t dtype, const std::vector<int64_t>& shape) {
  return fa3_dense(nullptr, static_cast<fa3_dtype>(dtype), static_cast<int32_t>(shape.size()),
                   shape.data());
}

template <class Args>
Args planned_args(int32_t dtype, int64_t b, int64_t sq, int64_t skv, int64_t hq, int64_t hkv,
                  int64_t dqk, int64_t dv) {
  Args args{};
  args.struct_size = sizeof args;
  args.q = shape_only(dtype, {b, sq, hq, dqk});
  args.k = shape_only(dtype, {b, skv, hkv, dqk});
  args.v = shape_only(dtype, {b, skv, hkv, dv});
  args.o = shape_only(dtype, {b, sq, hq, dv});
  args.lse = shape_only(FA3_F32, {b, hq, sq});
  return args;
}

// Workspace stays below 32 MiB per thread, however long the sequences; the backward may add FP32
// accumulators of dQ or of dK and dV.
TEST(CpuMemory, Workspace_Below32MiBPerThread) {
  for (const int threads : {1, 2, 8, 64}) {
    const kit::Context context = kit::make_context(threads);
    kit::expect_property("workspace", 300, [&] {
      const auto dtype = *rc::gen::element<int32_t>(FA3_F32, FA3_F16, FA3_BF16);
      const auto dim = rc::gen::element<int64_t>(1, 16, 64, 72, 128, 256, 512);
      const auto length = rc::gen::weightedOneOf<int64_t>(
          {{1, rc::gen::inRange<int64_t>(1, 100)},
           {1, rc::gen::inRange<int64_t>(1000, 10000)},
           {1, rc::gen::element<int64_t>(131072, 1'000'000, 100'000'000)}});
      const int64_t b = *rc::gen::inRange<int64_t>(1, 20), hkv = *rc::gen::inRange<int64_t>(1, 20);
      const int64_t hq = hkv * *rc::gen::element<int64_t>(1, 2, 8, 64);
      const int64_t sq = *length, skv = *length, dqk = *dim, dv = *dim;
      const double limit = 32.0 * 1024 * 1024 * threads;
      fa3_plan* raw = nullptr;
      auto forward = planned_args<fa3_forward_args>(dtype, b, sq, skv, hq, hkv, dqk, dv);
      forward.mask = *rc::gen::element(FA3_MASK_FULL, FA3_MASK_CAUSAL);
      RC_ASSERT(fa3_plan_forward(context.get(), &forward, &raw) == FA3_OK);
      RC_ASSERT(fa3_plan_workspace_bytes(kit::Plan(raw).get()) <= limit);
      auto backward = planned_args<fa3_backward_args>(dtype, b, sq, skv, hq, hkv, dqk, dv);
      backward.mask = forward.mask;
      backward.dout = backward.o;
      backward.dq = backward.q;
      backward.dk = backward.k;
      backward.dv = backward.v;
      RC_ASSERT(fa3_plan_backward(context.get(), &backward, &raw) == FA3_OK);
      // Rows and columns of the accumulators may be padded to whole tiles and vectors.
      const double dq = 4.0 * b * (sq + 6) * hq * (dqk + 16),
                   dkv = 4.0 * b * skv * hkv * (dqk + dv + 32);
      RC_ASSERT(fa3_plan_workspace_bytes(kit::Plan(raw).get()) <= limit + std::max(dq, dkv));
    });
  }
}

// ---- 131,072 tokens --------------------------------------------------------------------------

// Kilobytes of a field of /proc/self/status; 0 when it is not there.
int64_t status_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0) return std::atoll(line.c_str() + field.size() + 1);
  return 0;
}

// The most memory that f() had beyond what was there before, in bytes; −1 when the system does not
// tell.
template <class F>
int64_t peak_bytes(F f) {
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // VmHWM := VmRSS
  const int64_t before = status_kib("VmHWM");
  f();
  if (!reset || before == 0) return -1;
  return (status_kib("VmHWM") - before) * 1024;
}

// Row i of a causal problem sees keys 0 … i: its FP64 result is that of one query against that
// prefix.
void expect_row_right(const fa3_forward_args& args, int64_t i) {
  fa3_forward_args row = args;
  const auto cut = [](fa3_tensor t, int dim, int64_t begin, int64_t count) {
    t.data =
        static_cast<std::byte*>(t.data) + begin * t.stride[dim] * verify::element_bytes(t.dtype);
    t.shape[dim] = count;
    return t;
  };
  row.q = cut(args.q, 1, i, 1);
  row.o = cut(args.o, 1, i, 1);
  row.lse = cut(args.lse, 2, i, 1);
  row.k = cut(args.k, 1, 0, i + 1);
  row.v = cut(args.v, 1, 0, i + 1);
  for (const auto& r : verify::compare_forward(row))
    EXPECT_TRUE(r.ok) << "row " << i << ": " << verify::to_text(r);
}

TEST(CpuMemory, Causal131072Tokens_RunsInBoundedMemory) {
  if (kit::reduction() > 1 || !kit::tests_cpu()) GTEST_SKIP() << "too long for this build";
  Config c;
  c.seqlen_q = c.seqlen_kv = 131072;
  c.head_dim_qk = c.head_dim_v = 16;
  c.mask = FA3_MASK_CAUSAL;
  const verify::Tensors t = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, t);
  const kit::Context context = kit::make_context(2);
  const int64_t peak = peak_bytes(
      [&] { ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error(); });
  EXPECT_LE(peak, 2 * (int64_t{32} << 20));
  RecordProperty("peak_bytes", std::to_string(peak));
  for (const int64_t i : {0, 1, 511, 512, 70000, 131000, 131071}) expect_row_right(args, i);
}

// ---- 64-bit offsets --------------------------------------------------------------------------

// Memory of which only the touched pages exist.
class Sparse {
 public:
  explicit Sparse(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Sparse() {
    if (ok()) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

// The same elements with a stride of more than 2^31 elements in dimension dim.
class Stretched {
 public:
  Stretched(const fa3_tensor& t, int dim) : view_(t) {
    constexpr int64_t kStride = (int64_t{1} << 31) + 64;
    view_.stride[dim] = kStride;
    const int64_t inner = verify::element_count(t);  // of the other dimensions: at most that
    memory_ = std::make_unique<Sparse>(((t.shape[dim] - 1) * kStride + inner) *
                                       verify::element_bytes(t.dtype));
    if (memory_->ok()) view_.data = memory_->data();
  }
  bool ok() const { return memory_->ok(); }
  const fa3_tensor& view() const { return view_; }

 private:
  fa3_tensor view_;
  std::unique_ptr<Sparse> memory_;
};

void copy_elements(const fa3_tensor& from, const fa3_tensor& to) {
  const int64_t size = verify::element_bytes(to.dtype);
  verify::for_each_row(from, [&](const verify::Index& at, void* row) {
    int64_t offset = 0;
    for (int d = 0; d < to.rank; ++d) offset += at[d] * to.stride[d];
    std::memcpy(static_cast<std::byte*>(to.data) + offset * size, row,
                from.shape[from.rank - 1] * size);
  });
}

class CpuOffsets : public ::testing::TestWithParam<std::tuple<int32_t, int>> {};

TEST_P(CpuOffsets, BeyondTwoToThe31_SameBits) {
  const auto [dtype, dim] = GetParam();
  const kit::Context context = kit::make_context();
  Config c;
  c.dtype = dtype;
  c.backward = true;
  c.batch = 2;
  c.heads_q = 2;
  c.heads_kv = 2;
  c.seqlen_q = 3;
  c.seqlen_kv = 4;
  c.head_dim_qk = c.head_dim_v = 8;
  const kit::OutputBits expected = kit::output_bits(c, context.get());

  const verify::Tensors t = verify::make_tensors(c);
  const fa3_forward_args near_forward = verify::forward_args(c, t);
  const fa3_backward_args near = verify::backward_args(c, t);
  const Stretched q(near.q, dim), k(near.k, dim), v(near.v, dim), o(near.o, dim),
      dout(near.dout, dim), dq(near.dq, dim), dk(near.dk, dim), dv(near.dv, dim),
      lse(near.lse, dim == 0 ? 0 : 1);
  for (const Stretched* x : {&q, &k, &v, &o, &dout, &dq, &dk, &dv, &lse})
    if (!x->ok()) GTEST_SKIP() << "the system does not lend that much address space";
  copy_elements(near.q, q.view());
  copy_elements(near.k, k.view());
  copy_elements(near.v, v.view());
  copy_elements(near.dout, dout.view());

  fa3_forward_args forward = near_forward;
  forward.q = q.view();
  forward.k = k.view();
  forward.v = v.view();
  forward.o = o.view();
  forward.lse = lse.view();
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(kit::bytes_of(forward.o), expected.at("o"));
  EXPECT_EQ(kit::bytes_of(forward.lse), expected.at("lse"));

  fa3_backward_args backward = near;
  backward.q = q.view();
  backward.k = k.view();
  backward.v = v.view();
  backward.o = o.view();
  backward.lse = lse.view();
  backward.dout = dout.view();
  backward.dq = dq.view();
  backward.dk = dk.view();
  backward.dv = dv.view();
  ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(kit::bytes_of(backward.dq), expected.at("dq"));
  EXPECT_EQ(kit::bytes_of(backward.dk), expected.at("dk"));
  EXPECT_EQ(kit::bytes_of(backward.dv), expected.at("dv"));
}

std::string offsets_name(const ::testing::TestParamInfo<std::tuple<int32_t, int>>& info) {
  const char* dims[] = {"batch", "row", "head"};
  return std::string(verify::dtype_text(std::get<0>(info.param))) + "_" +
         dims[std::get<1>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Strides, CpuOffsets,
                         ::testing::Combine(::testing::Values(FA3_F32, FA3_BF16),
                                            ::testing::Values(0, 1, 2)),
                         offsets_name);

// Varlen tensors of 2^31 tokens are out of reach, but not cu_seqlens that begin near their end.
TEST(CpuVarlenOffsets, RowsFarApart_SameBits) {
  const kit::Context context = kit::make_context();
  Config c;
  c.heads_q = 2;
  c.head_dim_qk = c.head_dim_v = 8;
  c.varlen_q = {2, 1};
  c.varlen_kv = {3, 2};
  const kit::OutputBits expected = kit::output_bits(c, context.get());
  const verify::Tensors t = verify::make_tensors(c);
  fa3_forward_args args = verify::forward_args(c, t);
  const Stretched q(args.q, 0), k(args.k, 0), v(args.v, 0), o(args.o, 0), lse(args.lse, 0);
  for (const Stretched* x : {&q, &k, &v, &o, &lse})
    if (!x->ok()) GTEST_SKIP() << "the system does not lend that much address space";
  copy_elements(args.q, q.view());
  copy_elements(args.k, k.view());
  copy_elements(args.v, v.view());
  args.q = q.view();
  args.k = k.view();
  args.v = v.view();
  args.o = o.view();
  args.lse = lse.view();
  ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(kit::bytes_of(args.o), expected.at("o"));
  EXPECT_EQ(kit::bytes_of(args.lse), expected.at("lse"));
}

}  // namespace
}  // namespace fa3
