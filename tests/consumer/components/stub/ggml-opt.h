// SPDX-License-Identifier: Apache-2.0
#ifdef BROKEN
#error broken
#endif
enum { GGML_OPT_OPTIMIZER_TYPE_SGD };
inline char const* ggml_opt_optimizer_name(int) { return ""; }
