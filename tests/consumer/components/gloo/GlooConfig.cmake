# SPDX-License-Identifier: Apache-2.0
message(FATAL_ERROR "The imported target \"gloo\" references the file libgloo.so but this file does not exist.")
