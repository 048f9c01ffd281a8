// SPDX-License-Identifier: Apache-2.0
// What the pages' snippets take for granted, declared and never defined: they are compiled, not run. names.txt has the
// names by which they ask for it.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/make.hpp>
#include <acco/outer.hpp>

template <class T>
T given();

struct batch {
  double size() const;
};
struct model {
  double add_gradients(batch const& samples, std::span<float const> parameters, std::span<float> gradients);
  float *params_memory, *grads_memory;
};
struct data_loader {
  std::uint64_t position() const;
  void seek(std::uint64_t position);
};
struct data_set {
  batch next();
};
struct c_model {
  float *params_memory, *grads_memory, mean_loss;
  std::size_t num_parameters;
};
void forward(c_model& model, batch const& samples);
void zero_grad(c_model& model);
void backward(c_model& model);
void update(c_model& model, float learning_rate, int step);
struct my_adamw {
  std::span<float const> parameters();
  std::span<float> gradients();
  void zero_grad();
  void divide_gradients(double by);
  void step();
};
std::array<double, 2> evaluate_share(std::span<float const> parameters, int rank, int ranks);
void log(auto const&...);
void evaluate(std::span<float const> parameters);
void save(std::span<float const> parameters);
