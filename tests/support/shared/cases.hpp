// SPDX-License-Identifier: Apache-2.0
// Behind core.hpp: what programs of test cases share (cmake/shared.cmake).
#pragma once

#include <doctest/doctest.h>
