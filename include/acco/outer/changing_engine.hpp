// SPDX-License-Identifier: Apache-2.0
// The engine of local updates among workers that change: some come, some leave, some are lost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/level_construction.hpp"
#include "acco/outer/outer_engine.hpp"
#include "acco/outer/regroup.hpp"
#include "acco/outer/workers_world.hpp"
#include "acco/round/training_engine.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's. Its worker's own engine stays; the exchanges are made anew over every world.
template <class Storage, class Backend>
class changing_engine : public outer_engine<Storage, Backend>, public changing_workers {
  using base = outer_engine<Storage, Backend>;
  using typename base::exchanges_type;
  using typename base::master_type;
  using brought = brought_by_workers<master_type>;
  using base::at_;
  using base::exchanges_;
  using base::in_;
  using base::inner_;
  using base::settings_;

 public:
  using base::base;

  [[nodiscard]] changing_workers* changing() noexcept override { return this; }
  [[nodiscard]] type_mark world_type() const noexcept override { return type_mark::of<Backend>(); }
  void depart() override {
    (void)brought::hand_over(*in_, nullptr, inner_, exchanges_.all(), settings_.ranks_a_worker);
    inner_.mark_finished();
  }
  void regroup(void const* world) override {
    go_to(world, [&](next_world& next) {
      auto all = brought::hand_over(*in_, next.to.get(), inner_, exchanges_.all(), settings_.ranks_a_worker);
      all.steps = at_.before;
      all.take_up(*next.to, inner_, next.exchanges.all(), settings_.ranks_a_worker, this->construction_.whole, slots());
    });
    this->go_on_from(at_.before);
  }
  [[nodiscard]] bool survives() const noexcept override { return settings_.ranks_a_worker == 1; }
  void survive(void const* world) override {
    inner_.loop().take_back_memory();
    in_->names.of_worker([&] { inner_.loop().land_now([](round_report&) {}); });
    std::vector<master_type> w(this->masters().begin(), this->masters().end());
    std::uint64_t steps = this->steps();
    go_to(world, [&](next_world& next) {
      next.to->join(this->construction_.whole, "regroup", "regroup after an error");
      next.exchanges.survive(*next.to, exchanges_, std::span(w), inner_.samples());
      std::vector<std::uint64_t> all(static_cast<std::size_t>(next.to->size()));
      next.to->gather(steps, std::span(all));
      steps = *std::max_element(all.begin(), all.end());
    });
    std::copy(w.begin(), w.end(), this->masters().begin());  // now: where another one is lost, this can be tried again
    this->go_on_from(steps, false);
    in_->names.of_worker([&] { inner_.loop().masters_changed(); });
  }
  void join() override {
    brought none(exchanges_.all().size(), 0);
    none.take_up(*in_, inner_, exchanges_.all(), settings_.ranks_a_worker, this->construction_.whole, slots());
    this->go_on_from(none.steps);
  }

 private:
  struct next_world {
    std::unique_ptr<workers_world<Backend>> to;
    exchanges_type exchanges;
  };
  [[nodiscard]] bool slots() const noexcept { return settings_.slots_every.any(); }
  /// bring(next) takes the level there, from the world so far.
  template <class Bring>
  void go_to(void const* given, Bring&& bring) {
    auto const& world = *static_cast<Backend const*>(given);
    exchange_settings const settings = checked(settings_, world.rank(), world.size(), settings_.slots_every.of.size());
    auto to = std::make_unique<workers_world<Backend>>(world, settings.ranks_a_worker, this->chosen_.deadline, slots());
    exchanges_type exchanges = this->exchanges_over(*to, settings);
    next_world next{std::move(to), std::move(exchanges)};
    this->state_.end();  // whoever keeps states knows the old world
    inner_.cut_next(false);
    try {
      bring(next);
    } catch (std::exception const& e) {  // the new world is to hear of it, too
      next.to->leave(e.what());
      next.exchanges.leave(e.what());
      throw;
    }
    this->bytes_before_ += exchanges_.bytes_sent();
    exchanges_ = std::move(next.exchanges);
    in_ = std::move(next.to);
    settings_ = settings;
    this->state_.stand(in_->names);
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
