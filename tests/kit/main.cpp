// SPDX-License-Identifier: BSD-3-Clause
// main.cpp — holds the precompiled headers of all test programs (tests/CMakeLists.txt).
int main() { return 0; }
