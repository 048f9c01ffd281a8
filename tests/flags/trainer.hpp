// SPDX-License-Identifier: Apache-2.0
// What passes between files that were compiled with different flags: the library's plain types.
#pragma once

#include <acco/any_optimizer.hpp>
#include <acco/options.hpp>
#include <acco/rule/adamw.hpp>

namespace trainer::with_no_flags {
acco::any_optimizer<float> make(acco::adamw const& rule, acco::options const& chosen);
float train(acco::any_optimizer<float>& training);
float train_on_two_ranks();
}  // namespace trainer::with_no_flags
namespace trainer::with_other_flags {
acco::any_optimizer<float> make(acco::adamw const& rule, acco::options const& chosen);
float train(acco::any_optimizer<float>& training);
float train_on_two_ranks();
}  // namespace trainer::with_other_flags
