// SPDX-License-Identifier: BSD-3-Clause
// tma.h — all of TMA's tensor copies.
#pragma once

#include "device/ptx/tma_load.h"
#include "device/ptx/tma_store.h"
