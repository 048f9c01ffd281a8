// SPDX-License-Identifier: Apache-2.0
// What passes between a shared object and a program that are compiled with -fvisibility=hidden, one of them with
// -fno-rtti.
#pragma once

#include <acco/any_optimizer.hpp>
#include <acco/collective/threads.hpp>

namespace maker {
/// Under local updates.
ACCO_VISIBLE acco::any_optimizer<float> make(acco::threads_backend const& world);
/// Throws `usage_error`.
ACCO_VISIBLE void fail();
/// Whether it catches what `call` throws as `usage_error`.
ACCO_VISIBLE bool catches(void (*call)());
}  // namespace maker
