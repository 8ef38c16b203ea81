/* SPDX-License-Identifier: BSD-3-Clause
 * failing_malloc.h — an allocator in place of the C library's, for the whole process: it counts,
 * and fails on request. */
#pragma once

/* How much fails: one allocation, or from then on every one. */
enum oom_mode { OOM_ONE, OOM_ALL_FROM };

/* The outcome of an n-th allocation. */
enum oom_outcome { OOM_NOT_REACHED, OOM_SPARED, OOM_FAILED };

/* Once, before anything else. An allocation whose site `spared` answers with 1 does not fail. */
void oom_prepare(int (*spared)(const char* site));

/* The n-th allocation from now on fails (1 = the next), in whichever thread. */
void oom_arm(long n, enum oom_mode mode);

/* From here on nothing fails. */
enum oom_outcome oom_disarm(void);

/* Frames of the n-th allocation, "library:function", the innermost first, one to a
 * line; "" when none has. In memory that child processes share with their parent. */
const char* oom_site(void);

/* dlopen refuses libraries with this in their name. NULL = none. */
void oom_hide_library(const char* part);
