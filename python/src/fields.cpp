// SPDX-License-Identifier: BSD-3-Clause
#include "fields.h"

#include <algorithm>
#include <cstring>
#include <fa3/fa3.hpp>

namespace fa3::python {
namespace {

// What a call needs of an fa3_field, in few bytes: it searches them for each argument.
struct Field {
  PyObject* key;  // the name, interned
  const char* name;
  std::size_t offset;
  std::int32_t kind;
  bool written;
};

// What Python may give of an operation's struct.
std::vector<Field> fields_of(fa3_op op) {
  std::vector<Field> all;
  for (const fa3_field& f : fa3::fields(op)) {
    if (f.kind == FA3_FIELD_RESERVED) continue;
    const bool written = f.role == FA3_FIELD_OUTPUT || f.role == FA3_FIELD_OPTIONAL_OUTPUT;
    all.push_back({PyUnicode_InternFromString(f.name), f.name, f.offset, f.kind, written});
  }
  return all;
}

const std::vector<Field>& table_of(fa3_op op) {
  static const std::vector<Field> forward = fields_of(FA3_OP_FORWARD);
  static const std::vector<Field> backward = fields_of(FA3_OP_BACKWARD);
  static const std::vector<Field> quantize = fields_of(FA3_OP_QUANTIZE);
  static const std::vector<Field> combine = fields_of(FA3_OP_COMBINE);
  return op == FA3_OP_FORWARD    ? forward
         : op == FA3_OP_BACKWARD ? backward
         : op == FA3_OP_QUANTIZE ? quantize
                                 : combine;
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

void fill_field(const Field& field, bool written, nb::handle value, Reader& reader, char* args) {
  char* at = args + field.offset;
  switch (field.kind) {
    case FA3_FIELD_TENSOR:
      return reader.read(std::strcmp(field.name, "o") == 0 ? "out" : field.name, value, written,
                         reinterpret_cast<fa3_tensor*>(at));
    case FA3_FIELD_I32:
      return put<std::int32_t>(at, field.name, value);
    case FA3_FIELD_I64:
      return put<std::int64_t>(at, field.name, value);
    case FA3_FIELD_U64:
      return put<std::uint64_t>(at, field.name, value);
    case FA3_FIELD_F64:
      return put<double>(at, field.name, value);
    case FA3_FIELD_BLOCK:
      return put_block(at, field.name, value);
    default:
      throw nb::value_error(
          (std::string(field.name) + ": of a kind unknown to this module").c_str());
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

std::vector<std::string> arguments(fa3_op op) {
  std::vector<std::string> names;
  for (const Field& f : table_of(op)) names.push_back(argument_of(f.name));
  return names;
}

void fill(fa3_op op, nb::dict fields, std::optional<std::int64_t> stream, Reader& reader,
          Arguments* args) {
  const std::vector<Field>& known = table_of(op);
  std::memset(args, 0, sizeof *args);
  args->forward.struct_size = op == FA3_OP_FORWARD    ? sizeof args->forward
                              : op == FA3_OP_BACKWARD ? sizeof args->backward
                              : op == FA3_OP_QUANTIZE ? sizeof args->quantize
                                                      : sizeof args->combine;
  // A forward that appends writes its cache, too.
  const bool appends =
      op == FA3_OP_FORWARD && fields.contains("k_new") && !nb::object(fields["k_new"]).is_none();
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(fields.ptr(), &position, &key, &value) != 0) {
    if (value == Py_None) continue;
    auto field =
        std::find_if(known.begin(), known.end(), [&](const Field& f) { return f.key == key; });
    if (field == known.end()) {  // not interned, or not ours
      field = std::find_if(known.begin(), known.end(),
                           [&](const Field& f) { return PyUnicode_Compare(f.key, key) == 0; });
    }
    if (field == known.end()) {
      throw nb::value_error(("no field " + std::string(nb::repr(key).c_str())).c_str());
    }
    const bool of_cache =
        appends && (std::strcmp(field->name, "k") == 0 || std::strcmp(field->name, "v") == 0);
    fill_field(*field, field->written || of_cache, value, reader, reinterpret_cast<char*>(args));
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
