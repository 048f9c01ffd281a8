// SPDX-License-Identifier: Apache-2.0
#include "gpt_cuda_test.cpp"
