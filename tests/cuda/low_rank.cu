// SPDX-License-Identifier: Apache-2.0
#include "cuda/low_rank.cpp"
