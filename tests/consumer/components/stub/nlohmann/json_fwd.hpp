// SPDX-License-Identifier: Apache-2.0
#ifdef BROKEN
#error broken
#endif
