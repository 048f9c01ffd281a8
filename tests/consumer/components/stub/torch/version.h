// SPDX-License-Identifier: Apache-2.0
#define TORCH_VERSION_MAJOR 2
#define TORCH_VERSION_MINOR 0
