// SPDX-License-Identifier: BSD-3-Clause
// gemm.cpp — the product of matrices, for the host.
#include "device/selftest/gemm.cuh"

#include "sim/program.h"

FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 128, 3, false, false}>)
