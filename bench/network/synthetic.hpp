// SPDX-License-Identifier: Apache-2.0
// What the files of the synthetic load share: its settings, its table of schedules, and how an optimizer is made of
// one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>
#include <acco/make.hpp>
#include <acco/outer.hpp>

namespace synthetic {

struct settings {
  std::string backend = "gloo", schedule = "two_phase", progress = "helper_thread", exchange = "full", checksums = "usual";
  std::size_t parameters = 1'000'000, piece_kib = 0, layers = 0;
  bool traced = false;
  double milliseconds = 50;        // of arithmetic in a micro-batch
  long unit = 0;                   // of arithmetic, what a millisecond is; 0: it is measured
  unsigned first = 1, second = 0;  // micro-batches of a step's two parts; 0: as many as in the first
  bool auto_pace = false;          // split them by measuring
  bool elastic = false;
  bool every_micro_batch = false;  // synchronous: a round for each
  unsigned local_steps = 8;        // of local updates, from one exchange to the next
  unsigned fragments = 4;          // of streaming_diloco
  int ranks_a_group = 0;           // of two levels; 0: the world has one
  int slow_rank = -1;              // computes everything twice
  int steps = 20;
  double clip = 0;

  [[nodiscard]] unsigned micro_batches() const noexcept { return first + (second != 0 ? second : first); }
  /// Schedules of one kind of round take all micro-batches of a step in it.
  [[nodiscard]] acco::any_pace pace() const noexcept {
    if (elastic) return acco::elastic_pace{.at_least = first, .at_most = 64};
    if (!schedule.starts_with("two_phase")) return acco::fixed_pace{.first = every_micro_batch ? 1 : micro_batches()};
    if (auto_pace) return acco::auto_pace{.micro_batches = micro_batches()};
    return acco::fixed_pace{.first = first, .second = second};
  }
};

/// Where a schedule is made: those that need an engine of their own take the compiler long, so they have files of their
/// own, and are made over Gloo and alone only, untraced.
enum class made { everywhere, decorated, locally };

using shared_engine = acco::without<acco::named_schedules, "two_phase+bfloat16">;
using family = acco::together<shared_engine, acco::decorated_schedules, acco::local_methods<>>;

[[nodiscard]] inline made where_made(std::string_view schedule) {
  const std::size_t place = acco::find_name(family{}, schedule);
  const std::size_t decorated = shared_engine::count, local = decorated + acco::decorated_schedules::count;
  return place < decorated ? made::everywhere : place < local ? made::decorated : made::locally;
}

/// One nameless tensor, or about as many parameters in the tensors of a GPT, matrices with decay, gains and biases
/// without.
[[nodiscard]] inline acco::parameter_layout layout_of(settings const& s) {
  if (s.layers == 0) return acco::parameter_layout(s.parameters);
  acco::parameter_layout layout;
  const auto without_decay = layout.add_group({.weight_decay = 0.0});
  const auto d = static_cast<std::size_t>(std::sqrt(static_cast<double>(s.parameters) / (12.0 * static_cast<double>(s.layers))));
  for (std::size_t layer = 0; layer < s.layers; ++layer) {
    const auto add = [&](char const* name, std::size_t rows, std::size_t columns) {
      layout.add(std::to_string(layer) + "." + name, {rows, columns}, rows == 1 ? without_decay : 0);
    };
    const auto linear = [&](std::string const& name, std::size_t to, std::size_t from) {
      add((name + ".weight").c_str(), to, from);
      add((name + ".bias").c_str(), 1, to);
    };
    for (char const* norm : {"attention", "feed_forward"}) {
      add((std::string(norm) + ".gain").c_str(), 1, d);
      add((std::string(norm) + ".shift").c_str(), 1, d);
      if (norm[0] == 'a') {
        linear("qkv", 3 * d, d);
        linear("projection", d, d);
      } else {
        linear("up", 4 * d, d);
        linear("down", d, 4 * d);
      }
    }
  }
  return layout;
}

template <class Schedule, class World>
[[nodiscard]] acco::any_optimizer<float> optimizer_with(Schedule const& schedule, settings const& s, World const& world) {
  return acco::any_optimizer<float>(acco::optimizer{acco::at_pace(schedule, s.pace()), acco::adamw{.learning_rate = 1e-3},
                                                    acco::host_storage<float>{}, world, layout_of(s),
                                                    acco::options{.clip_norm = s.clip, .deadline = 60}});
}

// Of synthetic_decorated.cpp, synthetic_local.cpp and synthetic_groups.cpp: the schedule of that name.
[[nodiscard]] acco::any_optimizer<float> make_decorated(settings const& s, acco::gloo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_decorated(settings const& s, acco::solo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_local(settings const& s, acco::gloo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_groups(settings const& s, acco::gloo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_local(settings const& s, acco::solo_backend const& world);

}  // namespace synthetic
