// SPDX-License-Identifier: Apache-2.0
// Workers on hosts of their own come, leave and are lost at random moments, over links of 100 ms that lose packets:
// after every exchange the parameters are those of the equations for the same history.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>
#include <acco/outer.hpp>

#include "outer/by_hand.hpp"
#include "support/patience.hpp"
#include "wan/network.hpp"

namespace {

using namespace by_hand;
using members = std::vector<int>;  // hosts, in the order of their ranks
constexpr int hosts = 5;
constexpr unsigned steps = 3;

int rank_in(members const& who, int host) {
  const auto its = std::find(who.begin(), who.end(), host);
  return its == who.end() ? -1 : static_cast<int>(its - who.begin());
}

enum class loss { none, cut, cut_while_it_exchanges, destroyed };
/// From one change of the members to the next.
struct chapter {
  members who, lost{};
  loss how = loss::none;
  unsigned exchanges = 1, in_step = 1;  // before anybody is lost; in which step after these
  double late = 0;                      // seconds into the exchange
};
std::vector<chapter> story(unsigned seed, int changes) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<chapter> all;
  members now{0, 1, 2};
  for (int k = 0; k <= changes; ++k) {
    chapter next{.who = now, .exchanges = 1 + static_cast<unsigned>(below(3))};
    const bool loses = k != changes && now.size() > 2 && below(2) == 0;
    std::shuffle(now.begin(), now.end(), random);
    if (loses) {
      next.how = static_cast<loss>(1 + below(3));
      next.exchanges -= 1;
      next.in_step = 1 + static_cast<unsigned>(below(steps));
      next.late = 0.001 * static_cast<double>(below(500));
      next.lost.assign(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(now.size() > 4 ? 1 + below(2) : 1));
    }
    all.push_back(next);
    if (loses) {  // the others keep their order
      now = next.who;
      std::erase_if(now, [&](int each) { return std::count(next.lost.begin(), next.lost.end(), each) != 0; });
      continue;
    }
    for (int host = 0; host < hosts; ++host) {
      const bool is_there = rank_in(now, host) >= 0;
      if (!is_there && below(2) == 0) now.push_back(host);
      if (is_there && now.size() > 2 && below(4) == 0) std::erase(now, host);
    }
  }
  return all;
}

/// What the equations say.
struct state {
  anchor all;
  std::map<int, numbers> w;
  std::map<int, unsigned> since;  // steps that a worker has made since the exchange that it landed last
  std::map<int, unsigned> made;   // and all of them
  double samples = 0;
  unsigned counted = 0;  // steps of the training

  void step(int host) {
    local_step(w.at(host), host);
    ++since.at(host);
    ++made.at(host);
  }
  void exchange() {
    std::vector<numbers*> ws;
    std::vector<double> weights;
    for (auto& [host, its] : w) {
      ws.push_back(&its);
      weights.push_back((1 + host) * static_cast<double>(since.at(host)));
      samples += weights.back();
      since.at(host) = 0;
    }
    all.exchange(ws, weights);
    counted += steps;
  }
  /// What was made before a loss, and brought behind it, counts.
  void finish() {
    for (auto const& [host, its] : made) counted = std::max(counted, its);
  }
};
/// Of all chapters, written by whoever comes there first: the others come to the same.
class history {
 public:
  explicit history(members const& who) {
    state first;
    for (const int host : who) join(first, host);
    states_.push_back(first);
  }
  static void join(state& to, int host) {
    to.w[host] = to.all.x;
    to.since[host] = 0;
    to.made[host] = to.counted;
  }
  state of(std::size_t chapter) {
    const std::lock_guard lock(mutex_);
    return states_.at(chapter);
  }
  void write(std::size_t chapter, state const& its) {
    const std::lock_guard lock(mutex_);
    if (chapter == states_.size()) return states_.push_back(its);
    CHECK(states_.at(chapter).all.x == its.all.x);
    CHECK(states_.at(chapter).w == its.w);
  }
  /// Steps that a worker had made in a chapter when it noticed that another one was lost.
  void note(std::size_t chapter, int host, unsigned made) {
    const std::lock_guard lock(mutex_);
    made_[{chapter, host}] = made;
  }
  unsigned made(std::size_t chapter, int host) {
    const std::lock_guard lock(mutex_);
    return made_.at({chapter, host});
  }

 private:
  std::mutex mutex_;
  std::vector<state> states_;
  std::map<std::pair<std::size_t, int>, unsigned> made_;
};

class worker {
 public:
  worker(wan::network& link, std::filesystem::path const& directory, std::vector<chapter> const& chapters, history& right,
         int host)
      : link_(link), directory_(directory), chapters_(chapters), right_(right), host_(host) {
    link_.enter(host);
  }

  void live() {
    for (at_ = 0; at_ < chapters_.size(); ++at_) {
      chapter const& now = chapters_[at_];
      if (rank_in(now.who, host_) < 0) continue;
      if (!world_) begin();
      CAPTURE(at_);
      CAPTURE(host_);
      if (now.how == loss::none) {
        in_peace(now);
      } else if (rank_in(now.lost, host_) >= 0) {
        be_lost(now);
      } else {
        outlive(now);
      }
    }
  }

 private:
  acco::gloo_backend world_of(std::size_t chapter) const {
    members const& who = chapters_[chapter].who;
    return acco::gloo_backend::from_files({rank_in(who, host_), static_cast<int>(who.size())}, directory_,
                                          "chapter " + std::to_string(chapter), {.deadline = 300 * patience()});
  }
  void begin() {
    world_ = world_of(at_);
    training_ = acco::optimizer{acco::local_updates{.method = acco::waiting<acco::sgd>{.rule = acco::diloco.rule,
                                                                                       .weights = acco::worker_weights::samples},
                                                    .steps = steps},
                                acco::sgd{.learning_rate = rate},
                                acco::host_storage<double>{},
                                *world_,
                                count,
                                acco::options{.deadline = 8 * patience()}};
    at_ == 0 ? training_.initialize(numbers(count, 1)) : training_.join();
  }
  void end() {
    training_ = {};
    world_.reset();
  }

  /// So many exchanges, each beside the equations.
  void train(state& right, unsigned exchanges) {
    for (unsigned k = 0; k < exchanges; ++k) {
      for (unsigned t = 0; t < steps; ++t) {
        ++made_;
        take_step(training_, host_);
      }
      all_step(right);
      right.exchange();
      CHECK(furthest(training_.parameters(), right.all.x) < 1e-10);
      CHECK(training_.samples() == right.samples);
      CHECK(training_.steps() == right.counted);
    }
  }
  static void all_step(state& right) {
    for (auto& [host, w] : right.w)
      for (unsigned t = 0; t < steps; ++t) right.step(host);
  }

  void in_peace(chapter const& now) {
    state right = right_.of(at_);
    made_ = 0;
    train(right, now.exchanges);
    training_.finish();
    right.finish();
    CHECK(training_.steps() == right.counted);
    if (at_ + 1 == chapters_.size()) return end();
    members const& next = chapters_[at_ + 1].who;
    std::erase_if(right.w, [&](auto const& each) { return rank_in(next, each.first) < 0; });
    for (const int host : next) history::join(right, host);  // all are at the anchor
    right_.write(at_ + 1, right);
    if (rank_in(next, host_) < 0) {
      training_.depart();
      return end();
    }
    auto other = world_of(at_ + 1);
    try {
      training_.regroup(other);
    } catch (acco::error const& e) {  // who comes may be lost right behind its join, whose last words come to some, or to none
      const bool at_once = chapters_[at_ + 1].how != loss::none && chapters_[at_ + 1].exchanges == 0;
      if (!at_once || e.peer() < 0) throw;  // it may name another one, which has noticed first
      noticed_ = true;
    }
    world_ = std::move(other);
  }

  void be_lost(chapter const& now) {
    state right = right_.of(at_);
    std::jthread later;  // ends in front of the world
    try {
      made_ = 0;
      train(right, now.exchanges);
      for (unsigned t = 1; t < now.in_step; ++t) take_step(training_, host_);
      if (now.how == loss::destroyed) return end();
      if (now.how == loss::cut) cut(true);
      for (unsigned t = now.in_step; t <= 4 * steps; ++t) {
        if (t == steps && now.how == loss::cut_while_it_exchanges) {
          later = std::jthread([&] {
            std::this_thread::sleep_for(std::chrono::duration<double>(now.late));
            cut(true);
          });
        }
        take_step(training_, host_);
      }
      FAIL_CHECK("it was not lost");
    } catch (acco::error const&) {
    }
    if (later.joinable()) later.join();
    end();
    cut(false);
  }
  void cut(bool swallowed) {
    for (int other = 0; other < hosts; ++other) {
      link_.set(host_, other, conditions(swallowed));
      link_.set(other, host_, conditions(swallowed));
    }
  }

  void outlive(chapter const& now) {
    state right = right_.of(at_);
    made_ = 0;
    try {
      if (!std::exchange(noticed_, false)) {
        train(right, now.exchanges + 3);
        FAIL_CHECK("nobody was lost");
      }
    } catch (acco::error const& e) {
      const bool right_one = e.peer() >= 0 && rank_in(now.lost, now.who.at(static_cast<std::size_t>(e.peer()))) >= 0;
      CHECK_MESSAGE(right_one, std::string(e.what()));
    }
    CHECK(made_ % steps == 0);
    right_.note(at_, host_, made_);
    world_ = acco::gloo_backend::from_those_left({world_->rank(), world_->size()}, directory_, "loss " + std::to_string(at_),
                                                 {.grace = 30 * patience(), .lost = static_cast<int>(now.lost.size())},
                                                 {.deadline = 300 * patience()});
    training_.regroup(*world_);
    state next = right_.of(at_);
    const auto exchanges = (static_cast<unsigned>(training_.steps()) - next.counted) / steps;
    CHECK(exchanges >= now.exchanges);
    for (unsigned k = 0; k < exchanges; ++k) {
      all_step(next);
      next.exchange();
    }
    std::erase_if(next.w, [&](auto const& each) { return rank_in(now.lost, each.first) >= 0; });
    std::fill(next.all.u.begin(), next.all.u.end(), 0.0);
    for (auto& [host, w] : next.w)
      for (unsigned t = exchanges * steps; t < right_.made(at_, host); ++t) next.step(host);
    CHECK(furthest(training_.parameters(), next.w.at(host_)) < 1e-10);
    right_.write(at_ + 1, next);
  }

 public:
  static wan::conditions conditions(bool swallowed) {
    return {.delay = 0.05, .jitter = 0.02, .loss = 0.01, .twice = 0.01, .overtake = true, .swallowed = swallowed};
  }

 private:
  wan::network& link_;
  std::filesystem::path const& directory_;
  std::vector<chapter> const& chapters_;
  history& right_;
  int host_;
  std::size_t at_ = 0;
  unsigned made_ = 0;
  bool noticed_ = false;  // while it regrouped, that another one is lost
  std::optional<acco::gloo_backend> world_;
  acco::any_optimizer<double> training_;
};

int setting(char const* name, int usual) {
  char const* const value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : usual;
}

}  // namespace

TEST_CASE("workers come, leave and are lost over long links: after every exchange the parameters are those of the equations") {
  if (auto const why = wan::network::missing(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return;
  }
  const auto seed = static_cast<unsigned>(setting("ACCO_CHURN_SEED", 1));
  const auto chapters = story(seed, setting("ACCO_CHURN_CHANGES", 12));
  std::printf("ACCO_CHURN_SEED=%u, ACCO_CHURN_CHANGES=%zu\n", seed, chapters.size() - 1);
  for (std::size_t k = 0; k < chapters.size(); ++k) {
    std::printf("%zu:", k);
    for (const int host : chapters[k].who) std::printf(" %d%s", host, rank_in(chapters[k].lost, host) < 0 ? "" : " (lost)");
    std::printf("\n");
  }
  std::fflush(stdout);
  auto const directory = std::filesystem::temp_directory_path() / ("acco_churn_" + std::to_string(getpid()));
  history right(chapters.front().who);
  setenv("GLOO_SOCKET_IFNAME", wan::network::card, 1);
  {
    wan::network link(hosts, worker::conditions(false), seed);
    std::vector<std::thread> all;
    for (int host = 0; host < hosts; ++host) {
      all.emplace_back([&, host] {
        try {
          worker(link, directory, chapters, right, host).live();
        } catch (std::exception const& e) {
          FAIL_CHECK("host " << host << ": " << std::string(e.what()));
        }
      });
    }
    for (std::thread& each : all) each.join();
  }
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}
