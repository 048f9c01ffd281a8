// SPDX-License-Identifier: Apache-2.0
#ifdef BROKEN
#error broken
#endif
#define CUDART_VERSION 12000
inline int cudaDeviceReset() { return 0; }
