// SPDX-License-Identifier: BSD-3-Clause
// interrupt.h — Ctrl-C, a request to end or a terminal that is gone ends the program with 130: at
// once, or after cleanup where files are being written.
#pragma once

namespace fa3::cli {

// Catches those of SIGINT, SIGTERM and SIGHUP that are not ignored: they end the process at once.
void install_interrupt_handler();

// From here on they only set a flag: the program is to stop, remove its temporary files and exit. A
// second one ends it at once.
void defer_interrupts();

// True once the user has asked to stop.
bool interrupted();

// Throws CliError{kInterrupted} once the user has asked to stop. For loops outside the library.
void stop_if_interrupted();

}  // namespace fa3::cli
