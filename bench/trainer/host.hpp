// SPDX-License-Identifier: Apache-2.0
// The trainer on the host, compiled once in host.cpp: whatever makes an optimizer for it includes no model.
#pragma once

#include <functional>

#include <acco/any_optimizer.hpp>
#include <acco/bfloat16.hpp>
#include <acco/options.hpp>

#include "runner.hpp"

namespace toy_gpt {

/// Makes the optimizer of a model with this layout.
template <class Parameter>
using optimizer_maker = std::function<acco::any_optimizer<Parameter>(acco::parameter_layout const&, acco::options const&)>;

/// Trains one rank, in floats whatever the parameters are stored in.
template <class Parameter>
void train_on_host(job& one, int rank, optimizer_maker<Parameter> const& make, summary& result);
extern template void train_on_host(job&, int, optimizer_maker<float> const&, summary&);
extern template void train_on_host(job&, int, optimizer_maker<acco::bfloat16> const&, summary&);

}  // namespace toy_gpt
