// SPDX-License-Identifier: Apache-2.0
// A trainer that knows the plain type only: tests/any_optimizer_user.cpp.
#pragma once

#include <cstddef>
#include <span>

#include <acco/any_optimizer.hpp>

/// Adds the gradient of a quadratic that differs between ranks; returns its loss.
double add_quadratic(std::span<float const> parameters, std::span<float> gradients, int rank);
void train_elsewhere(acco::any_optimizer<float>& training, int rank, int micro_batches);
