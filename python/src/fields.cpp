// SPDX-License-Identifier: BSD-3-Clause
#include "fields.h"

#include <cstring>

namespace fa3::python {
namespace {

enum class Kind { kIn, kOut, kI32, kI64, kU64, kF64, kBlock };
struct Field {
  const char* name;
  std::size_t offset;
  Kind kind;
  PyObject* key = nullptr;  // the name, interned
};

#define FA3_FIELD(type, field, kind) \
  { #field, offsetof(type, field), Kind::kind }
#define FA3_ATTENTION_FIELDS(type)                                                            \
  FA3_FIELD(type, q, kIn), FA3_FIELD(type, k, kIn), FA3_FIELD(type, v, kIn),                  \
      FA3_FIELD(type, mask, kI32), FA3_FIELD(type, left, kI64), FA3_FIELD(type, right, kI64), \
      FA3_FIELD(type, softmax_scale, kF64), FA3_FIELD(type, softcap, kF64),                   \
      FA3_FIELD(type, cu_seqlens_q, kIn), FA3_FIELD(type, cu_seqlens_kv, kIn),                \
      FA3_FIELD(type, seqused_q, kIn), FA3_FIELD(type, seqused_kv, kIn),                      \
      FA3_FIELD(type, max_seqlen_q, kI64), FA3_FIELD(type, max_seqlen_kv, kI64),              \
      FA3_FIELD(type, alibi_slopes, kIn), FA3_FIELD(type, sequence_ids_q, kIn),               \
      FA3_FIELD(type, sequence_ids_kv, kIn), FA3_FIELD(type, attn_mask, kIn),                 \
      FA3_FIELD(type, mask_alignment, kI32)

Field forward_fields[] = {
    FA3_ATTENTION_FIELDS(fa3_forward_args),
    FA3_FIELD(fa3_forward_args, o, kOut),
    FA3_FIELD(fa3_forward_args, lse, kOut),
    FA3_FIELD(fa3_forward_args, q_scale, kIn),
    FA3_FIELD(fa3_forward_args, k_scale, kIn),
    FA3_FIELD(fa3_forward_args, v_scale, kIn),
    FA3_FIELD(fa3_forward_args, k_offset, kIn),
    FA3_FIELD(fa3_forward_args, v_offset, kIn),
    FA3_FIELD(fa3_forward_args, q_block, kBlock),
    FA3_FIELD(fa3_forward_args, k_block, kBlock),
    FA3_FIELD(fa3_forward_args, v_block, kBlock),
    FA3_FIELD(fa3_forward_args, precision, kI32),
    FA3_FIELD(fa3_forward_args, precision_seed, kU64),
    FA3_FIELD(fa3_forward_args, v_image, kIn),
    FA3_FIELD(fa3_forward_args, v_image_layout, kI32),
};
Field backward_fields[] = {
    FA3_ATTENTION_FIELDS(fa3_backward_args),
    FA3_FIELD(fa3_backward_args, o, kIn),
    FA3_FIELD(fa3_backward_args, lse, kIn),
    FA3_FIELD(fa3_backward_args, dout, kIn),
    FA3_FIELD(fa3_backward_args, dlse, kIn),
    FA3_FIELD(fa3_backward_args, dq, kOut),
    FA3_FIELD(fa3_backward_args, dk, kOut),
    FA3_FIELD(fa3_backward_args, dv, kOut),
    FA3_FIELD(fa3_backward_args, dattn_mask, kOut),
    FA3_FIELD(fa3_backward_args, deterministic, kI32),
};
Field quantize_fields[] = {
    FA3_FIELD(fa3_quantize_args, x, kIn),
    FA3_FIELD(fa3_quantize_args, codes, kOut),
    FA3_FIELD(fa3_quantize_args, scale, kOut),
    FA3_FIELD(fa3_quantize_args, offset, kOut),
    FA3_FIELD(fa3_quantize_args, cu_seqlens, kIn),
    FA3_FIELD(fa3_quantize_args, seqused, kIn),
    FA3_FIELD(fa3_quantize_args, rotary_cos, kIn),
    FA3_FIELD(fa3_quantize_args, rotary_sin, kIn),
    FA3_FIELD(fa3_quantize_args, rotary_position, kIn),
    FA3_FIELD(fa3_quantize_args, max_seqlen, kI64),
    FA3_FIELD(fa3_quantize_args, block, kBlock),
    FA3_FIELD(fa3_quantize_args, rotary_layout, kI32),
    FA3_FIELD(fa3_quantize_args, hadamard, kI32),
    FA3_FIELD(fa3_quantize_args, seed, kU64),
    FA3_FIELD(fa3_quantize_args, v_image, kOut),
    FA3_FIELD(fa3_quantize_args, v_image_layout, kI32),
};
#undef FA3_ATTENTION_FIELDS
#undef FA3_FIELD

struct Table {
  Field* begin;
  Field* end;
};

template <std::size_t n>
Table table(Field (&fields)[n]) {
  if (fields[0].key == nullptr) {
    for (Field& f : fields) f.key = PyUnicode_InternFromString(f.name);
  }
  return {fields, fields + n};
}

Table table_of(fa3_op op) {
  if (op == FA3_OP_FORWARD) return table(forward_fields);
  if (op == FA3_OP_BACKWARD) return table(backward_fields);
  return table(quantize_fields);
}

template <class T>
void put(char* at, const char* name, nb::handle value) {
  T number;
  if (!nb::try_cast(value, number)) {
    const std::string got = nb::repr(value).c_str();
    throw nb::type_error((argument_of(name) + ": " + got + ", need " +
                          (std::is_floating_point_v<T> ? "a number" : "an integer in range"))
                             .c_str());
  }
  std::memcpy(at, &number, sizeof number);
}

void put_block(char* at, const char* name, nb::handle value) {
  std::pair<std::int32_t, std::int32_t> block;
  if (!nb::isinstance<nb::tuple>(value) || nb::len(value) != 2 ||
      !nb::try_cast(value[0], block.first) || !nb::try_cast(value[1], block.second)) {
    throw nb::type_error((std::string(name) + ": need a tuple of rows and columns").c_str());
  }
  const fa3_scale_block both = {block.first, block.second};
  std::memcpy(at, &both, sizeof both);
}

void fill_field(const Field& field, nb::handle value, Reader& reader, char* args) {
  char* at = args + field.offset;
  switch (field.kind) {
    case Kind::kIn:
    case Kind::kOut:
      return reader.read(std::strcmp(field.name, "o") == 0 ? "out" : field.name, value,
                         field.kind == Kind::kOut, reinterpret_cast<fa3_tensor*>(at));
    case Kind::kI32:
      return put<std::int32_t>(at, field.name, value);
    case Kind::kI64:
      return put<std::int64_t>(at, field.name, value);
    case Kind::kU64:
      return put<std::uint64_t>(at, field.name, value);
    case Kind::kF64:
      return put<double>(at, field.name, value);
    case Kind::kBlock:
      return put_block(at, field.name, value);
  }
}

// A mask of fewer dimensions is the same for all of those in front.
void put_in_front(fa3_tensor& mask) {
  constexpr std::int32_t kRank = 4;
  if (mask.rank <= 0 || mask.rank >= kRank) return;
  const std::int32_t missing = kRank - mask.rank;
  for (std::int32_t d = kRank - 1; d >= 0; --d) {
    mask.shape[d] = d < missing ? 1 : mask.shape[d - missing];
    mask.stride[d] = d < missing ? 1 : mask.stride[d - missing];
  }
  mask.rank = kRank;
}

// The C interface takes strides that are all 0 for strides that nobody set, and refuses them. Of a
// mask that is one element expanded in every dimension the heads become an extent of 1, whose
// stride may be anything; all extents are checked there as ever.
void give_a_stride(fa3_tensor& mask, const fa3_tensor& q) {
  constexpr std::int32_t kRank = 4, kHeads = 1, kHeadsOfQ = 2;
  if (mask.rank != kRank || q.rank != kRank) return;
  for (std::int32_t d = 0; d < kRank; ++d) {
    if (mask.stride[d] != 0) return;
  }
  mask.stride[kHeads] = 1;
  if (mask.shape[kHeads] == q.shape[kHeadsOfQ]) mask.shape[kHeads] = 1;
}

template <class Args>
void shape_mask(Args& args) {
  put_in_front(args.attn_mask);
  give_a_stride(args.attn_mask, args.q);
}

// Operations and fields that Python calls otherwise.
struct Rename {
  const char *field, *argument;
};
constexpr Rename kRenames[] = {
    {"forward", "attention"},
    {"backward", "attention_backward"},
    {"o", "out"},
    {"left", "window[0]"},
    {"right", "window[1]"},
    {"mask", "window"},
    {"mask_alignment", "top_left"},
    {"precision_seed", "seed"},
    {"precision=1", "precision=\"fp8\""},
    {"precision=2", "precision=\"eight_bit\""},
    {"precision=3", "precision=\"eight_bit_accurate\""},
};

}  // namespace

std::string argument_of(const std::string& field) {
  for (const Rename& r : kRenames) {
    if (field == r.field) return r.argument;
  }
  return field;
}

void fill(fa3_op op, nb::dict fields, std::optional<std::int64_t> stream, Reader& reader,
          Arguments* args) {
  const Table known = table_of(op);
  std::memset(args, 0, sizeof *args);
  args->forward.struct_size = op == FA3_OP_FORWARD    ? sizeof args->forward
                              : op == FA3_OP_BACKWARD ? sizeof args->backward
                                                      : sizeof args->quantize;
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(fields.ptr(), &position, &key, &value) != 0) {
    const Field* field = known.begin;
    while (field != known.end && field->key != key) ++field;
    if (field == known.end) {  // not interned, or not ours
      field = known.begin;
      while (field != known.end && PyUnicode_Compare(field->key, key) != 0) ++field;
    }
    if (field == known.end) {
      throw nb::value_error(("no field " + std::string(nb::repr(key).c_str())).c_str());
    }
    if (value == Py_None) continue;
    fill_field(*field, value, reader, reinterpret_cast<char*>(args));
  }
  reader.finish(stream);
  if (op == FA3_OP_FORWARD) shape_mask(args->forward);
  if (op == FA3_OP_BACKWARD) {
    shape_mask(args->backward);
    put_in_front(args->backward.dattn_mask);
  }
}

std::string in_python(const char* message) {
  // "forward: o.shape[1]=3 …": the operation, then the field at fault.
  const std::string text = message;
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return text;
  const std::size_t begin = colon + 2;
  std::size_t end = text.find_first_of("=.:[ ", begin);
  if (text.compare(begin, 10, "precision=") == 0) end = begin + 11;
  if (end == std::string::npos) end = text.size();
  return argument_of(text.substr(0, colon)) + ": " + argument_of(text.substr(begin, end - begin)) +
         text.substr(end);
}

}  // namespace fa3::python
