// SPDX-License-Identifier: BSD-3-Clause
// capi_fields_test.cpp — what fa3_fields says of the argument structs.
#include <algorithm>
#include <cstddef>
#include <string>

#include "capi_kit.h"

namespace fa3_test {
namespace {

size_t bytes_of(int32_t kind) {
  switch (kind) {
    case FA3_FIELD_TENSOR:
      return sizeof(fa3_tensor);
    case FA3_FIELD_I32:
    case FA3_FIELD_RESERVED:
      return 4;
    default:
      return 8;
  }
}

fa3_field field_of(fa3_op op, const std::string& name) {
  for (const fa3_field& f : fa3::fields(op))
    if (name == f.name) return f;
  ADD_FAILURE() << "no field " << name;
  return {};
}

TEST(Fields, CoverTheStruct_InItsOrder) {
  const std::pair<fa3_op, size_t> structs[] = {{FA3_OP_FORWARD, sizeof(fa3_forward_args)},
                                               {FA3_OP_BACKWARD, sizeof(fa3_backward_args)},
                                               {FA3_OP_QUANTIZE, sizeof(fa3_quantize_args)},
                                               {FA3_OP_COMBINE, sizeof(fa3_combine_args)}};
  for (const auto& [op, size] : structs) {
    size_t end = sizeof(size_t);  // struct_size
    for (const fa3_field& f : fa3::fields(op)) {
      EXPECT_EQ(f.offset, end) << f.name << " of operation " << op;
      end = f.offset + bytes_of(f.kind);
    }
    EXPECT_EQ(end, size) << "operation " << op;
  }
}

// Programs may keep an index: those of the first release that has fa3_fields never change.
TEST(Fields, KeepTheirIndex) {
  const auto name = [](fa3_op op, size_t i) { return std::string(fa3::fields(op).at(i).name); };
  EXPECT_EQ(name(FA3_OP_FORWARD, 0), "q");
  EXPECT_EQ(name(FA3_OP_FORWARD, 34), "attn_mask");
  EXPECT_EQ(name(FA3_OP_FORWARD, 36), "mask_alignment_reserved");
  EXPECT_EQ(name(FA3_OP_BACKWARD, 30), "dattn_mask");
  EXPECT_EQ(name(FA3_OP_QUANTIZE, 16), "v_image_reserved");
  EXPECT_EQ(name(FA3_OP_COMBINE, 3), "lse");
}

TEST(Fields, DescribeATensor) {
  const fa3_field lse = field_of(FA3_OP_FORWARD, "lse");
  EXPECT_EQ(lse.offset, offsetof(fa3_forward_args, lse));
  EXPECT_EQ(lse.kind, FA3_FIELD_TENSOR);
  EXPECT_EQ(lse.role, FA3_FIELD_OPTIONAL_OUTPUT);
  EXPECT_EQ(lse.dtype, FA3_F32);
  EXPECT_EQ(lse.strided, 1);
  EXPECT_STREQ(lse.types, "f32");
  EXPECT_STREQ(lse.shape, "(batch, heads_q, seqlen_q)");
  EXPECT_STREQ(lse.varlen_shape, "(heads_q, total_q)");
  EXPECT_EQ(lse.of, nullptr);
  EXPECT_EQ(field_of(FA3_OP_BACKWARD, "lse").role, FA3_FIELD_INPUT);

  const fa3_field parts = field_of(FA3_OP_COMBINE, "o_parts");
  EXPECT_STREQ(parts.shape, "(parts, batch, seqlen, heads, head_dim)");
  EXPECT_STREQ(parts.varlen_shape, "(parts, total, heads, head_dim)");
  EXPECT_STREQ(field_of(FA3_OP_COMBINE, "lse_parts").varlen_shape, "(parts, heads, total)");

  const fa3_field scale = field_of(FA3_OP_FORWARD, "k_scale");
  EXPECT_STREQ(scale.of, "k");
  EXPECT_STREQ(scale.shape, "(batch, heads_kv, blocks of rows, blocks of columns)");
  EXPECT_EQ(scale.varlen_shape, nullptr);

  const fa3_field mask = field_of(FA3_OP_FORWARD, "attn_mask");
  EXPECT_EQ(mask.role, FA3_FIELD_OPTIONAL_INPUT);
  EXPECT_EQ(mask.dtype, FA3_DTYPE_NONE);
  EXPECT_STREQ(mask.shape, "(batch, heads_q, seqlen_q, seqlen_kv)");
  EXPECT_STREQ(mask.varlen_shape, "(batch, heads_q, seqlen_q, max_seqlen_kv)");

  EXPECT_EQ(field_of(FA3_OP_FORWARD, "cu_seqlens_q").strided, 0);
}

TEST(Fields, DescribeAScalar) {
  const fa3_field cap = field_of(FA3_OP_BACKWARD, "softcap");
  EXPECT_EQ(cap.offset, offsetof(fa3_backward_args, softcap));
  EXPECT_EQ(cap.kind, FA3_FIELD_F64);
  EXPECT_EQ(cap.role, FA3_FIELD_OPTION);
  EXPECT_EQ(cap.shape, nullptr);
  EXPECT_EQ(cap.types, nullptr);
  EXPECT_STREQ(field_of(FA3_OP_FORWARD, "v_block").of, "v");
  EXPECT_STREQ(field_of(FA3_OP_QUANTIZE, "block").of, "codes");
}

TEST(Fields, AreRefused_WhereThereAreNone) {
  fa3_field field = {};
  field.struct_size = sizeof field;
  const auto refused = [&](fa3_status status, const std::vector<std::string>& parts) {
    EXPECT_EQ(status, FA3_INVALID_ARGUMENT);
    for (const std::string& part : parts) EXPECT_THAT(fa3_last_error(), testing::HasSubstr(part));
  };
  const auto count = static_cast<int32_t>(fa3::fields(FA3_OP_FORWARD).size());
  const std::string number = std::to_string(count);
  refused(fa3_fields(FA3_OP_FORWARD, count, &field),
          {"index=" + number, "forward has " + number + " fields"});
  refused(fa3_fields(FA3_OP_FORWARD, -1, &field), {"index=-1"});
  refused(fa3_fields(static_cast<fa3_op>(0), 0, &field), {"op=0"});
  refused(fa3_fields(FA3_OP_FORWARD, 0, nullptr), {"field is NULL"});
  field.struct_size = 0;
  refused(fa3_fields(FA3_OP_FORWARD, 0, &field), {"struct_size=0"});
  EXPECT_THROW(fa3::fields(static_cast<fa3_op>(0)), fa3::Error);
}

// A program of a newer release has a longer struct: what this library does not know stays.
TEST(Fields, LongerStruct_KeepsItsTail) {
  struct {
    fa3_field known;
    uint64_t newer;
  } field = {{}, 7};
  field.known.struct_size = sizeof field;
  ASSERT_EQ(fa3_fields(FA3_OP_FORWARD, 0, &field.known), FA3_OK);
  EXPECT_EQ(field.known.struct_size, sizeof field);
  EXPECT_STREQ(field.known.name, "q");
  EXPECT_EQ(field.newer, 7u);
}

}  // namespace
}  // namespace fa3_test
