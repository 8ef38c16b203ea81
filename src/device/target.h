// SPDX-License-Identifier: BSD-3-Clause
// target.h — what differs between compilers that see device code; the only place for #ifdef on them
// besides ptx/.
#pragma once

// FA3_HD marks a pure function that host, simulator and GPU share.
#if defined(__CUDACC__)
#define FA3_HD __host__ __device__ inline
#else
#define FA3_HD inline
#endif
