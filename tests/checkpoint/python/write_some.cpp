// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints of several types, rules and numbers of ranks below a folder, for the programs in Python beside it:
// in the folder of each, `run` holds two, one of them of a training that rests, and `parameters` its parameters, tensor
// after tensor.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>
#include <acco/outer.hpp>

#include "support/problem.hpp"

namespace {

/// A rule whose name is no name of a file, and that keeps nothing.
struct plain_descent {
  double learning_rate = 1e-2;
  static constexpr char const* name = "plain descent/2";
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double rate;
  };
  [[nodiscard]] constants prepare(acco::update_step const& step, acco::update_group const&) const {
    return {learning_rate * step.learning_rate_scale};
  }
  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, 0>&, constants const& c) {
    parameter -= Real(c.rate) * gradient;
  }
};

acco::parameter_layout layout(bool freezes) {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = freezes});
  layout.add("wte", {300, 33}).add("still.weight", {7, 9}, still).add("h.0.\"attention\" \u00fc", {2, 150, 1001});
  layout.add("empty", {0, 5}).add("scalar", {}).add("still.bias", {9}, still);
  return layout;
}

/// What a rank's trainer keeps: nothing, a number, or much.
std::vector<std::uint16_t> position(int rank) {
  return std::vector<std::uint16_t>(rank == 0 ? 700'001 : rank == 1 ? 3 : 0, static_cast<std::uint16_t>(rank + 7));
}

template <class Storage, class Schedule, class Rule>
void write(std::string const& folder, int ranks, Schedule const& schedule, Rule const& rule, bool freezes, double decay = 0,
           bool places = true) {
  using P = typename Storage::parameter_type;
  using G = typename Storage::gradient_type;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::any_optimizer<P, G> t =
        acco::optimizer{schedule, rule, Storage{}, world, layout(freezes), acco::options{.average_decay = decay}};
    t.initialize(problem::converted<P>(problem::initial(t.layout().size())));
    const auto save = [&] {
      if (places) {
        t.save(folder + "/run", [rank = world.rank()] { return position(rank); });
      } else {
        t.save(folder + "/run");
      }
    };
    const auto check = [&] {
      if (t.saved() == nullptr || !t.saved()->complete())
        throw std::runtime_error(folder + ": not saved: " + (t.saved() == nullptr ? "" : t.saved()->problem));
    };
    for (std::size_t m = 0; m < 9; ++m) {
      const double loss = problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
      if (m == 4) save();
      (void)t.accumulated(m == 6 ? 0.7 : 1.25, loss);
    }
    t.finish();
    check();
    save();
    t.finish();
    check();
    if (world.rank() == 0) {
      std::ofstream out(folder + "/parameters", std::ios::binary);
      out.write(reinterpret_cast<char const*>(t.parameters().data()), static_cast<std::streamsize>(t.parameters().size_bytes()));
    }
  });
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::string root = words[1];
  const auto folder = [&](char const* name) {
    std::filesystem::create_directories(root + "/" + name);
    return root + "/" + name;
  };
  const acco::coded coded{acco::block_int8{}, acco::block_int4{}};
  using acco::bfloat16, acco::half, acco::host_storage;
  try {
    for (const int ranks : {1, 2, 3, 5}) {
      write<host_storage<float>>(folder(("float_at_" + std::to_string(ranks)).c_str()), ranks,
                                 acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, true, 0.9);
    }
    write<host_storage<double>>(folder("double"), 2, acco::delayed{}, acco::sgd{.momentum = 0.9}, false);
    write<host_storage<bfloat16>>(folder("bfloat16"), 3, acco::two_phase{.commit = coded}, acco::lion{}, true);
    write<host_storage<float, half>>(folder("half_gradients"), 2, acco::weight_prediction{}, acco::adamw{}, false);
    write<host_storage<half, float>>(folder("half"), 2, acco::weight_prediction{}, plain_descent{}, true, 0.5);
    write<host_storage<float, half>>(
        folder("feedback"), 3,
        acco::delayed{.commit = acco::coded{acco::with_error_feedback<acco::block_int8<>>{}, acco::full{}}}, acco::adamw{}, true);
    write<host_storage<float>>(
        folder("believed"), 3,
        acco::delayed{.commit = acco::coded{acco::with_feedback{acco::block_int8{}, acco::ef21{}}, acco::full{}}}, acco::adamw{},
        true);
    write<host_storage<float>>(folder("nothing_of_its_own"), 2, acco::synchronous{}, plain_descent{}, false, 0, false);
    write<host_storage<float>>(folder("workers"), 3, acco::local_updates{.method = acco::diloco, .steps = 2}, acco::adamw{}, true,
                               0.9);
    write<host_storage<float>>(
        folder("workers_of_two"), 4,
        acco::local_updates{.method = acco::eager_diloco, .ranks_a_group = 2, .steps = 2, .exchange = acco::block_int4{}},
        acco::lion{}, false);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
