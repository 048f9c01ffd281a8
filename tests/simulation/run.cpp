// SPDX-License-Identifier: Apache-2.0
#include "simulation/run.hpp"

#include <exception>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>

#include <acco/collective/mock/world.hpp>

#include "simulation/make.hpp"
#include "support/counting.hpp"

namespace simulation {
namespace {

/// Counts, and has nothing more from its `last`-th call on.
class limited_resource final : public std::pmr::memory_resource {
 public:
  std::size_t last = std::numeric_limits<std::size_t>::max();
  bool* struck = nullptr;
  counting::resource counted;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (counted.calls >= last) {
      *struck = true;
      throw std::bad_alloc();
    }
    return counted.allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override { counted.deallocate(p, bytes, alignment); }
  [[nodiscard]] bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

training_setting differing(training_setting t, std::size_t difference) {
  switch (difference) {
    case 0: t.clip_norm += 1; break;
    case 1: t.first += 1; break;
    case 2:  // corrections are made for one rule (make.cpp)
      if (t.wires == wire_kind::estimate_corrected) {
        t.wires = wire_kind::estimate_own;
      } else {
        t.rule = (t.rule + 1) % acco::all_rules::count;
      }
      break;
    case 3: t.layout.add("one more", {3}); break;
    case 4: t.bucket_elements += 1; break;
    default:
      t.schedule = t.waits() ? schedule_kind::delayed : schedule_kind::synchronous;
      t.elastic = t.found = t.feeds_back = false;
      t.wires = wire_kind::full;
      break;
  }
  t.at_most = t.first + 8;
  return t;
}

/// One optimizer on one rank: makes its calls one by one, and writes down what it sees.
class participant {
 public:
  participant(setting const& s, std::size_t number, int rank, acco::mock_backend const& world, limited_resource& memory,
              rank_log& mine, bool& struck)
      : setting_(s),
        number_(number),
        rank_(rank),
        struck_(struck),
        is_culprit_(rank == s.culprit && number == s.strikes_in),
        memory_(memory),
        t_(is_culprit_ && s.kind == disaster::differs ? differing(s.trainings[number], s.difference) : s.trainings[number]),
        rank_log_(mine),
        log_(mine.trainings[number]),
        polls_(s.seed + static_cast<std::uint64_t>(rank)),
        training_(make(t_, world, memory, [this](acco::training_position const& at) { return rate(at); }, skips())) {
    if (is_culprit_ && s.kind == disaster::differs) struck_ = true;
  }

  void initialize() {
    const std::size_t announced = training_.memory().total();
    if (memory_.counted.now != 0) complain("something was allocated before initialize");
    std::vector<double> initial(t_.layout.size());
    for (std::size_t i = 0; i < initial.size(); ++i)
      initial[i] = derivative(rank_ == 0 ? t_.data : static_cast<std::uint64_t>(rank_), i, 0);
    call([&] { training_.initialize(initial); });
    if (memory_.counted.now != announced || training_.memory().total() != announced) {
      complain("memory() announced " + std::to_string(announced) + " bytes, " + std::to_string(memory_.counted.now) +
               " were allocated");
    }
    initialized_ = true;
    if (t_.stable_addresses) address_ = {training_.parameters().data(), training_.gradients().data()};
    next_segment();
    look(seen::initialized);
  }

  [[nodiscard]] bool done() const { return segment_ == t_.micro_batches.size(); }
  [[nodiscard]] bool leaves_now() const {
    return strikes(disaster::leaves) || (is_culprit_ && setting_.kind == disaster::leaves && segment_ > setting_.segment);
  }

  /// The next micro-batch, or finish.
  void step() {
    if (micro_batch_ == t_.micro_batches[segment_][static_cast<std::size_t>(rank_)]) return finish();
    if (strikes(disaster::throws)) {
      struck_ = true;
      throw std::runtime_error("the data loader of rank " + std::to_string(rank_) + " broke");
    }
    if (setting_.polls && polls_.chance(0.5)) call([&] { training_.poll(); });
    const std::size_t m = micro_batch_++;
    const double weight = t_.weight(segment_, rank_, m);
    const double factor = weight == 0 && t_.stray_gradients ? 0.5 : weight;
    auto const p = training_.parameters();
    auto const g = training_.gradients();
    if (t_.clears() && log_.segments.back().parts.back().empty()) std::fill(g.begin(), g.end(), 0.0);
    const std::uint64_t sample = t_.sample(segment_, rank_, m);
    if (factor != 0) {
      for (std::size_t i = 0; i < g.size(); ++i) g[i] += factor * derivative(sample, i, p[i]);
    }
    if (setting_.poisons() && is_culprit_ && segment_ == setting_.segment && m == setting_.at) {
      g[setting_.element] = setting_.poison;
      struck_ = true;
    }
    log_.segments.back().parts.back().push_back(m);
    const std::size_t boundary = log_.segments.back().parts.size() - 1;
    bool launched = false;
    call([&] {
      auto const report = training_.accumulated(weight, 2 * weight);
      if (report) look(seen::report, &*report);
      launched = report || (boundary == 0 && log_.segments.back().parts.back().size() == t_.first);
    });
    if (!launched) return;
    log_.segments.back().parts.emplace_back();
    for (planned_question const& q : t_.questions[segment_]) {
      if (q.boundary == boundary) ask(q.what, boundary, false);
    }
  }

  /// Behind an error that has left a call: what still holds.
  void after_error() {
    if (!initialized_) return;
    look(seen::error);
    if (in_finish_) log_.snapshots.back().boundary = 1;
    std::string again;
    try {
      training_.accumulated(1);
    } catch (std::exception const& e) {
      again = e.what();
    }
    if (failed_ && again != what_) complain("the next call threw '" + again + "' behind '" + what_ + "'");
    if (setting_.kind != disaster::raised || !is_struck_ || !failed_ || !found_together_) return;
    try {
      ask(question::gather_committed, 0, false, true);
    } catch (std::exception const& e) {
      complain(std::string("ranks that found an error together cannot gather behind it: ") + e.what());
    }
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  [[nodiscard]] bool skips() const { return setting_.kind == disaster::skipped; }
  [[nodiscard]] bool strikes(disaster kind) const {
    return is_culprit_ && setting_.kind == kind && segment_ == setting_.segment && micro_batch_ >= setting_.at;
  }
  double rate(acco::training_position const& at) {
    log_.asked_rates.push_back(at.samples);
    if (is_culprit_ && rates_++ >= setting_.at + 2) {  // the first ones are the construction's
      if (setting_.kind == disaster::rate_throws) {
        struck_ = true;
        throw std::runtime_error("no rate on rank " + std::to_string(rank_));
      }
      if (setting_.kind == disaster::rate_is_nan) {
        struck_ = true;
        return std::numeric_limits<double>::quiet_NaN();
      }
    }
    return t_.rate(at);
  }
  void complain(std::string const& what) {
    rank_log_.complaints.push_back("rank " + std::to_string(rank_) + ", training " + std::to_string(number_) + ": " + what);
  }
  template <class Action>
  void call(Action action) {
    try {
      action();
    } catch (std::exception const& e) {
      failed_ = true;
      what_ = e.what();
      is_struck_ = struck_;
      found_together_ = dynamic_cast<acco::non_finite_error const*>(&e) != nullptr;
      throw;
    }
  }

  void finish() {
    log_.segments.back().finishing = true;
    in_finish_ = true;
    call([&] { training_.finish(t_.drops ? acco::unfinished::drop : acco::unfinished::commit); });
    in_finish_ = false;
    look(seen::finished);
    ask(question::gather_committed, 0, true);
    ask(question::state_digest, 0, true);
    log_.final_digest = log_.answers.back().digest;
    ++segment_;
    next_segment();
  }
  void next_segment() {
    micro_batch_ = 0;
    if (done()) {
      log_.complete = true;
      return;
    }
    log_.segments.emplace_back();
  }

  void look(seen what, acco::round_report const* report = nullptr) {
    snapshot s{.what = what, .segment = segment_};
    s.boundary = log_.segments.back().parts.size() - 1;
    s.rounds = training_.totals().rounds;
    s.parameters.assign(training_.parameters().begin(), training_.parameters().end());
    s.samples = training_.samples();
    s.steps = training_.steps();
    s.dropped = training_.totals().dropped;
    if (report != nullptr) {
      s.round = report->round;
      s.committed = report->committed;
      s.skipped = report->skipped;
      s.weight = report->weight;
      s.mean_loss = report->mean_loss;
      s.step_weight = report->step_weight;
      s.step_loss = report->step_loss;
      s.norm = report->gradient_norm;
      s.clip = report->clip_scale;
      s.rate = report->learning_rate_scale;
      s.digest = report->digest.value_or(0);
    }
    if (t_.stable_addresses && (training_.parameters().data() != address_.parameters ||
                                (what != seen::error && training_.gradients().data() != address_.gradients)))
      complain("stable addresses have moved");
    log_.snapshots.push_back(std::move(s));
  }
  void ask(question what, std::size_t boundary, bool after_finish, bool after_error = false) {
    answer a{.what = what, .segment = segment_, .boundary = boundary, .after_finish = after_finish, .after_error = after_error};
    const auto before = std::vector<double>(training_.parameters().begin(), training_.parameters().end());
    const std::size_t bytes = memory_.counted.now;
    call([&] {
      switch (what) {
        case question::gather_committed:
          a.numbers.assign(t_.layout.size(), -77);
          training_.gather_committed(a.numbers);
          break;
        case question::state_digest:
          a.digest = training_.state_digest();
          if (training_.state_digest() != a.digest) complain("two digests of one state differ");
          break;
        case question::sum_over_ranks:
          a.numbers = {static_cast<double>(rank_ + 1), 0.5};
          training_.sum_over_ranks(a.numbers);
          break;
      }
    });
    auto const now = training_.parameters();
    if (!std::equal(before.begin(), before.end(), now.begin(), now.end())) complain("a question has changed parameters()");
    if (memory_.counted.now != bytes) complain("a question has left memory behind");
    a.rounds = training_.totals().rounds;
    log_.answers.push_back(std::move(a));
  }

  setting const& setting_;
  std::size_t number_;
  int rank_;
  bool& struck_;
  bool is_culprit_;
  limited_resource& memory_;
  training_setting t_;
  rank_log& rank_log_;
  training_log& log_;
  stream polls_;
  std::size_t segment_ = 0, micro_batch_ = 0, rates_ = 0;
  bool initialized_ = false, failed_ = false, in_finish_ = false, is_struck_ = false, found_together_ = false;
  std::string what_;
  struct {
    void const *parameters, *gradients;
  } address_{};
  acco::any_optimizer<double> training_;
};

void train(setting const& s, acco::mock_backend const& world, std::vector<limited_resource>& memories, rank_log& mine,
           bool& struck) {
  std::vector<std::unique_ptr<participant>> trainings;
  for (std::size_t k = 0; k < s.trainings.size(); ++k)
    trainings.push_back(std::make_unique<participant>(s, k, world.rank(), world, memories[k], mine, struck));
  try {
    for (auto& each : trainings) each->initialize();
    stream order(s.seed ^ 0x0dd5U);  // the same on every rank
    for (;;) {
      std::vector<participant*> open;
      for (auto& each : trainings) {
        if (!each->done()) open.push_back(each.get());
      }
      if (open.empty()) break;
      participant& next = *open[order.below(open.size())];
      if (next.leaves_now()) {
        struck = true;
        return;
      }
      next.step();
    }
  } catch (std::exception const&) {
    for (auto& each : trainings) {
      if (each->failed()) each->after_error();
    }
    throw;
  }
}

/// Sums of its own beside the training: whatever happens there, they go on.
void stand_by(setting const& s, acco::mock_backend const& world, std::vector<std::string>& complaints) {
  try {
    acco::host_queue queue(world.driver());
    for (std::uint64_t k = 0; k < 3 + s.seed % 40; ++k) {
      const double mine = static_cast<double>(k) + world.rank();
      double sum = 0;
      world.all_reduce(queue, acco::partial<double const>(std::span(&mine, 1)), acco::replicated<double>(std::span(&sum, 1)));
      queue.wait();
      const double ranks = world.size();
      if (sum != ranks * static_cast<double>(k) + ranks * (ranks - 1) / 2)
        complaints.emplace_back("a sum beside the training is wrong");
    }
    if (world.size() != s.bystanders) complaints.emplace_back("the split has put ranks where they do not belong");
  } catch (std::exception const& e) {
    complaints.push_back(std::string("beside the training: ") + e.what());
  }
}

}  // namespace

outcome run(setting const& s) {
  outcome out;
  out.ranks.resize(static_cast<std::size_t>(s.ranks));
  std::vector<std::vector<limited_resource>> memories(out.ranks.size());
  for (auto& each : memories) each = std::vector<limited_resource>(s.trainings.size());
  if (s.kind == disaster::bad_alloc) {
    limited_resource& strikes = memories[static_cast<std::size_t>(s.culprit)][s.strikes_in];
    strikes.last = s.at;
    strikes.struck = &out.struck;
  }
  acco::mock_options options;
  if (s.delay_at_most == std::numeric_limits<std::size_t>::max()) {
    options.delay = acco::complete_when_waited_for{};
  } else {
    options.delay = acco::complete_at_random{.seed = s.seed, .at_most = s.delay_at_most};
  }
  const std::size_t before = s.bystanders != 0 ? 1 : 0;  // collectives: the split's
  options.fault = [&](acco::mock_event const& e) {
    if (s.kind == disaster::none || e.rank != s.outside(s.culprit) || e.index != s.at + before) return acco::mock_fault::none;
    const acco::mock_fault fault = s.kind == disaster::death      ? acco::mock_fault::death
                                   : s.kind == disaster::loss     ? acco::mock_fault::loss
                                   : s.kind == disaster::mismatch ? acco::mock_fault::mismatch
                                                                  : acco::mock_fault::none;
    if (fault != acco::mock_fault::none) out.struck = true;
    if (fault == acco::mock_fault::death) out.ranks[static_cast<std::size_t>(s.culprit)].died = true;
    return fault;
  };
  acco::mock_world world(s.ranks + s.bystanders, std::move(options));
  const auto body = [&](acco::mock_backend const& backend) {
    rank_log& mine = out.ranks[static_cast<std::size_t>(backend.rank())];
    mine.trainings.resize(s.trainings.size());
    try {
      train(s, backend, memories[static_cast<std::size_t>(backend.rank())], mine, out.struck);
      mine.ended = true;
    } catch (acco::error const& e) {
      mine.is_error = true;
      mine.peer = e.peer();
      mine.what = e.what();
      mine.kind = dynamic_cast<acco::non_finite_error const*>(&e) != nullptr ? "non_finite_error"
                  : dynamic_cast<acco::memory_error const*>(&e) != nullptr   ? "memory_error"
                  : dynamic_cast<acco::mismatch_error const*>(&e) != nullptr ? "mismatch_error"
                  : dynamic_cast<acco::peer_error const*>(&e) != nullptr     ? "peer_error"
                  : dynamic_cast<acco::deadline_error const*>(&e) != nullptr ? "deadline_error"
                                                                             : "usage_error";
      throw;
    } catch (std::bad_alloc const& e) {
      mine.kind = "bad_alloc";
      mine.what = e.what();
      throw;
    } catch (std::exception const& e) {
      mine.kind = "exception";
      mine.what = e.what();
      throw;
    }
  };
  try {
    world.run([&](acco::mock_backend const& all) {
      if (s.bystanders == 0) return body(all);
      const bool trains = all.rank() >= s.bystanders;
      const acco::mock_backend part = all.split(trains ? 1 : 0, s.backwards ? -all.rank() : all.rank());
      trains ? body(part) : stand_by(s, part, out.complaints);
    });
  } catch (std::exception const&) {  // every rank has written down its own
  }
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    for (limited_resource const& each : memories[rank]) {
      if (each.counted.now != 0) out.ranks[rank].complaints.push_back("rank " + std::to_string(rank) + " has left memory behind");
    }
  }
  return out;
}

}  // namespace simulation
