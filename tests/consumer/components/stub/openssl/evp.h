// SPDX-License-Identifier: Apache-2.0
#ifdef BROKEN
#error broken
#endif
inline int EVP_sha256() { return 0; }
