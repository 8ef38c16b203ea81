// SPDX-License-Identifier: BSD-3-Clause
// problem_terms_test.cpp — slopes and sequence ids: legal shapes, and what is refused by name.
#include <functional>

#include "args_kit.h"

namespace fa3 {
namespace {

using test::dense_args;
using test::problem_of;
using test::tensor;
using test::varlen_args;

TEST(MakeProblem, AlibiSlopes_OfHeadsOrOfBatchAndHeads) {
  Args args = dense_args();
  EXPECT_FALSE(problem_of(args).has_alibi());
  args.tensor[kAlibiSlopes] = tensor(FA3_F32, {4});
  EXPECT_TRUE(problem_of(args).has_alibi());
  EXPECT_EQ(problem_of(args).layout[kAlibiSlopes], (Layout{FA3_F32, 0, 0, 1}));
  args.tensor[kAlibiSlopes] = tensor(FA3_F32, {2, 4}, {6, 1});
  EXPECT_EQ(problem_of(args).layout[kAlibiSlopes], (Layout{FA3_F32, 6, 0, 1}));
  args.tensor[kAlibiSlopes] = tensor(FA3_F32, {2, 4}, {0, 1});  // expanded
  EXPECT_EQ(problem_of(args).layout[kAlibiSlopes], (Layout{FA3_F32, 0, 0, 1}));
  Args varlen = varlen_args();
  varlen.tensor[kAlibiSlopes] = tensor(FA3_F32, {3, 4});
  const Problem p = problem_of(varlen);
  EXPECT_EQ(p.layout[kAlibiSlopes], (Layout{FA3_F32, 4, 0, 1}));
  EXPECT_EQ(p.entries_of(kAlibiSlopes), 3) << "though the rows are varlen";
  EXPECT_EQ(p.rows_of(kAlibiSlopes), 1);
}

TEST(MakeProblem, SequenceIds_DenseAndVarlen) {
  Args args = dense_args(FA3_OP_BACKWARD);
  EXPECT_FALSE(problem_of(args).has_sequence_ids());
  args.tensor[kSequenceIdsQ] = tensor(FA3_I32, {2, 5});
  args.tensor[kSequenceIdsKv] = tensor(FA3_I32, {2, 7}, {9, 1});
  Problem p = problem_of(args);
  EXPECT_TRUE(p.has_sequence_ids());
  EXPECT_EQ(p.layout[kSequenceIdsQ], (Layout{FA3_I32, 5, 1, 0}));
  EXPECT_EQ(p.layout[kSequenceIdsKv], (Layout{FA3_I32, 9, 1, 0}));
  Args varlen = varlen_args();  // queries varlen, keys dense
  varlen.tensor[kCuSeqlensKv] = {};
  varlen.tensor[kK] = tensor(FA3_F32, {3, 7, 2, 8});
  varlen.tensor[kV] = tensor(FA3_F32, {3, 7, 2, 6});
  varlen.tensor[kSequenceIdsQ] = tensor(FA3_I32, {10});
  varlen.tensor[kSequenceIdsKv] = tensor(FA3_I32, {3, 7});
  p = problem_of(varlen);
  EXPECT_EQ(p.layout[kSequenceIdsQ], (Layout{FA3_I32, 0, 1, 0}));
  EXPECT_EQ(p.layout[kSequenceIdsKv], (Layout{FA3_I32, 7, 1, 0}));
  EXPECT_EQ(p.entries_of(kSequenceIdsQ), 1);
  EXPECT_EQ(p.rows_of(kSequenceIdsQ), 10);
}

// Of batch 2, seqlen_q 5, seqlen_kv 7, 4 query heads; varlen: 10 and 14 rows.
Args with_terms(Args args) {
  const bool varlen = args.tensor[kCuSeqlensQ].rank != 0;
  args.tensor[kAlibiSlopes] = tensor(FA3_F32, {4});
  args.tensor[kSequenceIdsQ] = varlen ? tensor(FA3_I32, {10}) : tensor(FA3_I32, {2, 5});
  args.tensor[kSequenceIdsKv] = varlen ? tensor(FA3_I32, {14}) : tensor(FA3_I32, {2, 7});
  return args;
}
const Args kTerms = with_terms(dense_args()), kVarlenTerms = with_terms(varlen_args()),
           kBackTerms = with_terms(dense_args(FA3_OP_BACKWARD));

// One change to legal arguments, and what the refusal names.
const struct {
  const char* name;
  Args args;
  std::function<void(Args&)> change;
  std::vector<std::string> parts;
} kRefusals[] = {
    {"slopes_type",
     kTerms,
     [](Args& a) { a.tensor[kAlibiSlopes].dtype = FA3_BF16; },
     {"forward", "alibi_slopes.dtype=bf16", "need f32"}},
    {"slopes_rank",
     kTerms,
     [](Args& a) {
       a.tensor[kAlibiSlopes] = tensor(FA3_F32, {2, 5, 4});
     },
     {"alibi_slopes.rank=3", "need rank 1 (heads_q)", "or (batch, heads_q)"}},
    {"slopes_of_kv_heads",
     kTerms,
     [](Args& a) { a.tensor[kAlibiSlopes] = tensor(FA3_F32, {2}); },
     {"alibi_slopes.shape[0]=2", "heads_q=4"}},
    {"slopes_batch",
     kBackTerms,
     [](Args& a) {
       a.tensor[kAlibiSlopes] = tensor(FA3_F32, {3, 4});
     },
     {"backward", "alibi_slopes.shape[0]=3", "batch=2", "(batch, heads_q) = (2, 4)"}},
    {"slopes_batch_packed",
     kVarlenTerms,
     [](Args& a) {
       a.tensor[kAlibiSlopes] = tensor(FA3_F32, {2, 4});
     },
     {"alibi_slopes.shape[0]=2", "batch=3"}},
    {"ids_of_queries_alone",
     kTerms,
     [](Args& a) { a.tensor[kSequenceIdsKv] = {}; },
     {"sequence_ids_q is given", "sequence_ids_kv is absent", "both or neither"}},
    {"ids_of_keys_alone",
     kBackTerms,
     [](Args& a) { a.tensor[kSequenceIdsQ] = {}; },
     {"backward", "sequence_ids_kv is given", "sequence_ids_q is absent"}},
    {"ids_type",
     kTerms,
     [](Args& a) { a.tensor[kSequenceIdsQ].dtype = FA3_F32; },
     {"sequence_ids_q.dtype=f32", "need i32"}},
    {"ids_rank_of_dense",
     kTerms,
     [](Args& a) { a.tensor[kSequenceIdsKv] = tensor(FA3_I32, {14}); },
     {"sequence_ids_kv.rank=1", "need rank 2 (batch, seqlen_kv)", "cu_seqlens_kv"}},
    {"ids_rank_of_packed",
     kVarlenTerms,
     [](Args& a) {
       a.tensor[kSequenceIdsQ] = tensor(FA3_I32, {2, 5});
     },
     {"sequence_ids_q.rank=2", "need rank 1 (total_q)", "cu_seqlens_q makes it varlen"}},
    {"ids_length",
     kTerms,
     [](Args& a) {
       a.tensor[kSequenceIdsQ] = tensor(FA3_I32, {2, 7});
     },
     {"sequence_ids_q.shape[1]=7", "seqlen_q=5"}},
    {"ids_strided",
     kTerms,
     [](Args& a) {
       a.tensor[kSequenceIdsKv] = tensor(FA3_I32, {2, 7}, {14, 2});
     },
     {"sequence_ids_kv.stride[1]=2", "not contiguous"}},
};

TEST(MakeProblem, SlopesAndIds_RefusedByNameAndShape) {
  problem_of(kTerms);
  problem_of(kVarlenTerms);
  problem_of(kBackTerms);
  for (const auto& refusal : kRefusals) {
    SCOPED_TRACE(refusal.name);
    Args args = refusal.args;
    refusal.change(args);
    test::expect_refusal(make_problem(args).status(), FA3_INVALID_ARGUMENT, refusal.parts);
  }
}

}  // namespace
}  // namespace fa3
