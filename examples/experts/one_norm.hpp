// SPDX-License-Identifier: Apache-2.0
// One norm for the gradients of several optimizers, of worlds of their own: what `options::clip_with` asks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>

#include <acco/acco.hpp>

namespace experts {

/// Of one rank. Each optimizer brings its square to every round; when all of this rank's have come, the ranks sum
/// theirs. The optimizers' rounds must be in flight at once: a schedule that does not wait, the same fixed pace, and
/// `accumulated` of one right behind that of the other. It must outlive them.
template <class World>
class one_norm {
 public:
  /// Every rank makes one, over the world of all, for so many optimizers a rank.
  one_norm(World const& world, int optimizers, double deadline = 600)
      : world_(world.duplicate()), optimizers_(optimizers), deadline_(deadline) {
    queue_.deadline = deadline;
    queue_.place = {world.rank(), -1, "the norm of all optimizers"};
  }

  /// For the options of an optimizer over so many ranks: all of these bring the square of the same gradients.
  [[nodiscard]] auto over(int ranks) {
    return [this, ranks](double mine) { return sum(mine / ranks); };
  }
  /// This rank leaves: who waits gets an error.
  void end() noexcept {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }

 private:
  double sum(double mine) {
    if (mine < 0) {  // this optimizer's round has failed
      end();
      return mine;
    }
    std::unique_lock lock(mutex_);
    mine_ += mine;
    const std::uint64_t round = rounds_;
    if (++came_ < optimizers_) {
      const bool all =
          changed_.wait_for(lock, std::chrono::duration<double>(deadline_), [&] { return rounds_ != round || ended_; });
      if (all && rounds_ == round)
        throw std::runtime_error("another optimizer of this rank has failed, or ended: look at its error first");
      if (!all) {
        throw std::runtime_error(
            "another optimizer of this rank did not come to the common norm. Both take the same fixed pace, under a schedule "
            "that does not wait for rounds; both finish with unfinished::drop; and nothing between their two calls waits");
      }
      return all_;
    }
    lock.unlock();  // nobody else is here; `end` does not wait
    try {
      world_.all_reduce(queue_, acco::partial<double const>(std::span(&mine_, 1)), acco::replicated<double>(std::span(&all_, 1)));
      queue_.wait();
    } catch (...) {
      end();  // the others of this rank wait for the sum
      throw;
    }
    lock.lock();
    mine_ = 0;
    came_ = 0;
    ++rounds_;
    changed_.notify_all();
    return all_;
  }

  World world_;
  acco::host_queue queue_{acco::make_queue<acco::host_queue>(world_)};
  int optimizers_, came_ = 0;
  double deadline_, mine_ = 0, all_ = 0;
  std::uint64_t rounds_ = 0;
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace experts
