// SPDX-License-Identifier: BSD-3-Clause
// fields.h — the argument structs of fa3.h from a dictionary: field name → array, number or block.
#pragma once
#include "array.h"

namespace fa3::python {

// Any of the structs that a plan is made for. They all begin with struct_size.
union Arguments {
  fa3_forward_args forward;
  fa3_backward_args backward;
  fa3_quantize_args quantize;
  fa3_combine_args combine;
};

// Fills the struct of `op`. Fields that the dictionary lacks, and those that are None, are off.
// Errors: TypeError (an array of another kind), ValueError (devices, strides, an unknown field).
void fill(fa3_op op, nb::dict fields, std::optional<std::int64_t> stream, Reader& reader,
          Arguments* args);

// What Python calls the fields that it may give, in the order of the struct.
std::vector<std::string> arguments(fa3_op op);

// What Python calls a field.
std::string argument_of(const std::string& field);

// The library's message in the words of Python: fields by the names of the functions' arguments.
std::string in_python(const char* message);

}  // namespace fa3::python
