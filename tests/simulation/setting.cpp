// SPDX-License-Identifier: Apache-2.0
#include "simulation/setting.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

namespace simulation {

char const* name_of(schedule_kind kind) {
  return std::array{"synchronous", "delayed", "two_phase", "weight_prediction"}[static_cast<std::size_t>(kind)];
}
char const* name_of(wire_kind kind) {
  return std::array{"full",
                    "estimate in int8",
                    "estimate in int4",
                    "coded commit",
                    "estimate from own gradients",
                    "estimate corrected by own gradients"}[static_cast<std::size_t>(kind)];
}
char const* name_of(lateness kind) { return std::array{"", ", extrapolated", ", compensated"}[static_cast<std::size_t>(kind)]; }
char const* name_of(disaster kind) {
  return std::array{"none",
                    "death",
                    "loss",
                    "mismatch",
                    "exception",
                    "learning rate throws",
                    "learning rate is NaN",
                    "bad_alloc",
                    "not finite, raised",
                    "not finite, skipped",
                    "constructed differently",
                    "leaves early"}[static_cast<std::size_t>(kind)];
}

double training_setting::weight(std::size_t segment, int rank, std::size_t micro_batch) const {
  const std::uint64_t h = mix(sample(segment, rank, micro_batch) ^ 0x5a5aU) % 16;
  return h < 3 ? 0 : h < 6 ? 0.5 : static_cast<double>(h % 4 + 1);
}
std::uint64_t training_setting::sample(std::size_t segment, int rank, std::size_t micro_batch) const {
  return mix(data + segment * 1000003 + static_cast<std::size_t>(rank) * 10007 + micro_batch);
}

namespace {

acco::parameter_layout draw_layout(stream& from) {
  acco::parameter_layout layout;
  const std::size_t plain_groups = from.below(3);
  for (std::size_t g = 0; g < plain_groups; ++g) {
    acco::update_group group{.learning_rate_scale = from.chance(0.5) ? 0.25 + from.unit() : 1.0};
    if (from.chance(0.5)) group.weight_decay = from.chance(0.5) ? 0.0 : 0.3 * from.unit();
    layout.add_group(group);
  }
  const bool frozen = from.chance(0.3);
  const std::size_t ice = frozen ? layout.add_group({.frozen = true}) : 0;
  std::size_t left = from.chance(0.7) ? from.between(1, 300) : from.between(300, 2000);
  std::size_t number = 0;
  const auto name = [&] { return "t" + std::to_string(number++); };
  while (left > 0) {
    if (frozen && from.chance(0.4)) layout.add(name(), {from.between(0, 90)}, ice);
    const std::size_t size = from.chance(0.1) ? 0 : from.chance(0.3) ? left : from.between(1, left);
    layout.add(name(), {size}, from.below(plain_groups + 1));
    left -= size;
  }
  if (frozen) layout.add(name(), {from.between(0, 70)}, ice);
  return layout;
}

training_setting draw_training(stream& from, int ranks, bool alone) {
  training_setting t;
  t.schedule = static_cast<schedule_kind>(from.below(4));
  if (from.chance(0.4)) t.wires = static_cast<wire_kind>(t.two_rounds() ? from.between(1, 3) : 3);
  t.rule = from.below(acco::all_rules::count);
  t.exact_every = static_cast<unsigned>(from.below(3));
  t.elastic = alone && !t.waits() && from.chance(0.3);
  t.first = static_cast<unsigned>(from.between(1, 3));
  t.second = static_cast<unsigned>(from.between(1, 3));
  t.at_most = t.first + static_cast<unsigned>(from.below(5));
  t.layout = draw_layout(from);
  t.clip_norm = from.chance(0.4) ? 0.8 * from.unit() * std::sqrt(static_cast<double>(t.layout.trainable_size())) + 1e-3 : 0;
  t.stable_addresses = from.chance(0.3);
  t.falling_rate = from.chance(0.5);
  t.stray_gradients = from.chance(0.3);
  t.bucket_elements = from.chance(0.5) ? 0 : from.between(1, 900);
  t.data = from.next();
  // two optimizers whose calls alternate need ranks that make the same calls
  const bool alike = !alone || from.chance(0.4);
  const std::size_t segments = from.chance(0.35) ? from.between(2, 3) : 1;
  for (std::size_t s = 0; s < segments; ++s) {
    const std::size_t length = from.chance(0.1) ? from.below(3) : from.between(1, 20);
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(alike ? length : from.below(length + 1));
    // Boundaries that every rank comes to, however elastic: questions stand behind them only.
    std::size_t common = 0, used = 0;
    const std::size_t fewest = *std::min_element(counts.begin(), counts.end());
    while (used + t.most(common) <= fewest) used += t.most(common++);
    std::vector<planned_question> questions;
    for (std::size_t b = 0; b < common; ++b) {
      while (from.chance(0.12)) questions.push_back({b, static_cast<question>(from.below(3))});
    }
    t.micro_batches.push_back(std::move(counts));
    t.questions.push_back(std::move(questions));
  }
  return t;
}

/// Leaves the split of a step of two rounds to the clock, and trains for long enough that it is found.
void find_the_split(training_setting& t, stream& from) {
  const unsigned step = static_cast<unsigned>(from.between(2, 7));
  t.found = true;
  t.second = step / 2;  // until it is found
  t.first = step - t.second;
  t.at_most = step;
  t.micro_batches.resize(1);  // the first boundary of a later segment would be anywhere
  const std::size_t length = step * from.between(6, 12);
  for (std::size_t& count : t.micro_batches[0]) count += length;
  t.questions.resize(1);
  for (std::size_t boundary = 0; boundary < 10; ++boundary) {
    if (from.chance(0.1)) t.questions[0].push_back({boundary + 2, static_cast<question>(from.below(3))});
  }
  std::sort(t.questions[0].begin(), t.questions[0].end(), [](auto const& a, auto const& b) { return a.boundary < b.boundary; });
}

void draw_disaster(setting& s, stream& from) {
  s.kind = static_cast<disaster>(from.between(1, disasters - 1));
  if (s.ranks == 1 && s.kind == disaster::differs) s.kind = disaster::leaves;  // from whom?
  s.culprit = static_cast<int>(from.below(static_cast<std::size_t>(s.ranks)));
  s.strikes_in = from.below(s.trainings.size());
  training_setting const& t = s.trainings[s.strikes_in];
  s.segment = from.below(t.micro_batches.size());
  const std::size_t count = t.micro_batches[s.segment][static_cast<std::size_t>(s.culprit)];
  s.at = count == 0 ? 0 : from.below(count);
  switch (s.kind) {
    case disaster::death:
    case disaster::loss:
    case disaster::mismatch: s.at = from.chance(0.3) ? from.below(12) : from.below(120); break;
    case disaster::rate_throws:
    case disaster::rate_is_nan: s.at = from.below(12); break;
    case disaster::bad_alloc: s.at = from.below(10); break;
    default: break;
  }
  // A trainable element.
  std::size_t index = from.below(t.layout.trainable_size());
  for (std::size_t k = 0; k < t.layout.tensor_count(); ++k) {
    auto const tensor = t.layout[k];
    if (t.layout.groups()[tensor.group].frozen) continue;
    if (index < tensor.size) {
      s.element = tensor.offset + index;
      break;
    }
    index -= tensor.size;
  }
  if (s.poisons()) s.trainings[s.strikes_in].drops = false;  // what is dropped raises nothing
  // a last round that weighs nothing is dropped, whatever it carries
  if (s.poisons()) {
    while (s.at < count && t.weight(s.segment, s.culprit, s.at) == 0) ++s.at;
  }
  s.poison = from.chance(0.5) ? std::numeric_limits<double>::quiet_NaN()
                              : (from.chance(0.5) ? 1 : -1) * std::numeric_limits<double>::infinity();
  s.difference = from.below(6);
}

}  // namespace

setting draw(std::uint64_t seed) {
  stream from(seed);
  setting s;
  s.seed = seed;
  s.ranks = static_cast<int>(from.between(1, 6));
  const bool alone = !from.chance(0.2);
  stream paces(seed ^ 0xaceeU);
  for (std::size_t k = 0; k < (alone ? 1U : 2U); ++k) {
    s.trainings.push_back(draw_training(from, s.ranks, alone));
    training_setting& t = s.trainings.back();
    if (t.two_rounds() && !t.elastic && paces.chance(0.2)) find_the_split(t, paces);
  }
  stream rests(seed ^ 0xd20bU);
  for (training_setting& t : s.trainings) {
    t.drops = rests.chance(0.5);
    t.in_steps = rests.chance(0.5);
  }
  s.delay_at_most = from.chance(0.2) ? 0 : from.chance(0.2) ? std::numeric_limits<std::size_t>::max() : from.between(1, 12);
  s.polls = from.chance(0.4);
  stream around(seed ^ 0xb15aU);
  if (around.chance(0.3)) s.bystanders = static_cast<int>(around.between(1, 3));
  s.backwards = s.bystanders != 0 && around.chance(0.5);
  stream variants(seed ^ 0x1a7eU);
  for (training_setting& t : s.trainings) {
    if (t.schedule == schedule_kind::delayed) t.late = static_cast<lateness>(variants.below(3));
  }
  const bool disastrous = !from.chance(0.4);
  if (disastrous) draw_disaster(s, from);
  for (training_setting& t : s.trainings) {  // whose poison is seen by its owner alone, or later
    if (t.wires == wire_kind::estimate_int8 && !s.poisons() && variants.chance(0.5)) t.wires = wire_kind::estimate_own;
  }
  stream corrections(seed ^ 0xc03eU);
  for (training_setting& t : s.trainings) {  // one rule: an engine of its own
    if (t.two_rounds() && t.wires != wire_kind::coded && t.rule == acco::place_of<acco::adamw>(acco::all_rules{}) &&
        !s.poisons() && corrections.chance(0.4))
      t.wires = wire_kind::estimate_corrected;
  }
  stream losses(seed ^ 0xfeedU);
  for (training_setting& t : s.trainings)
    t.feeds_back = t.wires == wire_kind::coded && (t.waits() || t.two_rounds()) && losses.chance(0.5);
  return s;
}

std::string describe(setting const& s) {
  std::ostringstream out;
  out << s.ranks << " ranks";
  if (s.bystanders != 0) out << ", split off " << s.bystanders << " others" << (s.backwards ? ", backwards" : "");
  out << ", delays ";
  if (s.delay_at_most == std::numeric_limits<std::size_t>::max()) {
    out << "until waited for";
  } else {
    out << "of at most " << s.delay_at_most << " polls";
  }
  out << (s.polls ? ", trainers poll" : "") << "\n";
  for (training_setting const& t : s.trainings) {
    out << "  " << name_of(t.schedule) << name_of(t.late) << " (" << name_of(t.wires);
    if (t.feeds_back) {
      out << ", with feedback";
    } else if (t.wires == wire_kind::coded) {
      out << ", exact every " << t.exact_every;
    }
    out << "), " << t.rule_name() << ", pace ";
    if (t.found) {
      out << "found, of " << t.step();
    } else if (t.elastic) {
      out << t.first << " to " << t.at_most;
    } else {
      out << t.first << (t.two_rounds() ? " + " + std::to_string(t.second) : "");
    }
    out << ", clip_norm " << t.clip_norm << ", buckets of " << t.bucket_elements
        << (t.stable_addresses ? ", stable addresses" : "") << (t.in_place() ? ", kept in place" : "")
        << (t.clears() ? ", clears its gradients" : "")
        << (t.falling_rate ? t.in_steps ? ", rate falling with steps" : ", rate falling with samples" : "")
        << (t.stray_gradients ? ", gradients without weight" : "") << (t.drops ? ", drops what is incomplete" : "")
        << "\n    layout " << t.layout.size() << " (" << t.layout.trainable_size() << " trainable):";
    for (std::size_t k = 0; k < t.layout.tensor_count(); ++k) {
      out << ' ' << t.layout[k].size << (t.layout.groups()[t.layout[k].group].frozen ? "*" : "") << "/" << t.layout[k].group;
    }
    for (std::size_t k = 0; k < t.micro_batches.size(); ++k) {
      out << "\n    segment " << k << ", micro-batches by rank:";
      for (const std::size_t count : t.micro_batches[k]) out << ' ' << count;
      for (planned_question const& q : t.questions[k]) {
        out << ", behind boundary " << q.boundary << ' '
            << std::array{"gather_committed", "state_digest", "sum_over_ranks"}[static_cast<std::size_t>(q.what)];
      }
    }
    out << "\n";
  }
  out << "  disaster: " << name_of(s.kind);
  if (s.kind != disaster::none) {
    out << ", rank " << s.culprit << ", at " << s.at << ", training " << s.strikes_in << ", segment " << s.segment;
    if (s.poisons()) out << ", element " << s.element << " = " << s.poison;
    if (s.kind == disaster::differs) out << ", difference " << s.difference;
  }
  return out.str();
}

}  // namespace simulation
