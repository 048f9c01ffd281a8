// SPDX-License-Identifier: Apache-2.0
#ifdef BROKEN
#error broken
#endif
#define NCCL_VERSION_CODE 22000
inline int ncclGetVersion(int*) { return 0; }
