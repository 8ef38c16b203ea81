// SPDX-License-Identifier: BSD-3-Clause
// headers.cpp — the public headers as a C++ program includes them: twice, and first of all.
#include <fa3/conformance.h>
#include <fa3/fa3.h>

#include <fa3/fa3.hpp>

static_assert(FA3_OK == 0, "fa3.hpp brings fa3.h");
