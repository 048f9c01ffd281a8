// SPDX-License-Identifier: Apache-2.0
inline void* HMAC(int, void const*, int, void*, int, void*, void*) { return nullptr; }
