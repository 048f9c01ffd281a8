// SPDX-License-Identifier: Apache-2.0
// What the files of the synthetic load share: its settings, its table of schedules, and how an optimizer is made of one.
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

namespace synthetic {

struct settings {
  std::string backend = "gloo", schedule = "two_phase", progress = "helper_thread", exchange = "full";
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
  int slow_rank = -1;              // computes everything twice
  int steps = 20;
  double clip = 0;
  std::string commit, estimate;  // GRADIENTS/PARAMETERS: rounds that travel in codes; empty: as the schedule's name says
  float feedback = 0;            // of such commits: what is kept of what codes have lost

  [[nodiscard]] unsigned micro_batches() const noexcept { return first + (second != 0 ? second : first); }
  [[nodiscard]] acco::fixed_pace split() const noexcept { return {.first = first, .second = second}; }
  /// One kind of round: as many micro-batches a step.
  [[nodiscard]] acco::fixed_pace whole() const noexcept { return {.first = micro_batches()}; }
};

/// Where a schedule is made: those that need an engine of their own take the compiler long, so they have files of their own, and
/// are made over Gloo and alone only, untraced.
enum class made { everywhere, decorated, locally };

struct row {
  std::string_view name;
  made where;
};
/// The whole family, in the order in which it is shown.
inline constexpr row family[] = {{"synchronous", made::everywhere},
                                 {"synchronous+coded", made::everywhere},
                                 {"delayed", made::everywhere},
                                 {"delayed+coded", made::everywhere},
                                 {"weight_prediction", made::everywhere},
                                 {"extrapolation", made::decorated},
                                 {"velocity", made::decorated},
                                 {"delay_compensation", made::decorated},
                                 {"two_phase", made::everywhere},
                                 {"two_phase+int8", made::everywhere},
                                 {"two_phase+int4", made::everywhere},
                                 {"two_phase+coded", made::everywhere},
                                 {"two_phase+own", made::everywhere},
                                 {"two_phase+own_corrected", made::decorated},
                                 {"local_sgd", made::locally},
                                 {"slowmo", made::locally},
                                 {"diloco", made::locally},
                                 {"delayed_diloco", made::locally},
                                 {"eager_diloco", made::locally},
                                 {"streaming_diloco", made::locally},
                                 {"co2", made::locally},
                                 {"overlap_local_sgd", made::locally}};

[[nodiscard]] inline made where_made(std::string_view schedule) {
  for (row const& each : family)
    if (each.name == schedule) return each.where;
  return made::everywhere;
}

/// One nameless tensor, or about as many parameters in the tensors of a GPT, matrices with decay, gains and biases without.
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
  return acco::any_optimizer<float>(acco::optimizer{schedule, acco::adamw{.learning_rate = 1e-3}, acco::host_storage<float>{},
                                                    world, layout_of(s), acco::options{.clip_norm = s.clip, .deadline = 60}});
}

// Of synthetic_decorated.cpp, synthetic_local.cpp and synthetic_codes.cpp: the schedule of that name.
[[nodiscard]] acco::any_optimizer<float> make_decorated(settings const& s, acco::gloo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_decorated(settings const& s, acco::solo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_local(settings const& s, acco::gloo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_local(settings const& s, acco::solo_backend const& world);
void print_codes();  // as JSON: the bytes that a number takes on the wire by each code's name, in blocks of 256
[[nodiscard]] acco::any_optimizer<float> make_in_codes(settings const& s, acco::gloo_backend const& world);
[[nodiscard]] acco::any_optimizer<float> make_in_codes(settings const& s, acco::solo_backend const& world);

}  // namespace synthetic
