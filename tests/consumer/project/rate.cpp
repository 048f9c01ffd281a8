// SPDX-License-Identifier: Apache-2.0
// Stands for ../other.cpp, which compiles an optimizer once more.
double rate_from_the_other_unit() { return 1e-2; }
