// SPDX-License-Identifier: BSD-3-Clause
// kernels.cpp — whole kernels of the conformance cases, for the host.
#include "device/selftest/attention.cuh"
#include "device/selftest/chain8.cuh"
#include "device/selftest/gemm.cuh"
#include "sim/program.h"

FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 256, 3, false, false}>)
FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{fa3::MmaType::kF16, 192, 3, true, false}>)
FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{fa3::MmaType::kE4m3, 128, 4, false, false}>)
FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 128, 4, true, true}>)
FA3_SIM_PROGRAM(fa3::gemm<fa3::GemmConfig{fa3::MmaType::kE5m2, 64, 4, false, true}>)
FA3_SIM_PROGRAM(fa3::attention)
FA3_SIM_PROGRAM(fa3::chain8<false>)
FA3_SIM_PROGRAM(fa3::chain8<true>)
