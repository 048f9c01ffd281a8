// SPDX-License-Identifier: Apache-2.0
#include "../toy_gpt/gpt_cuda.cpp"
