// SPDX-License-Identifier: Apache-2.0
// A backend of your own: four collectives over whatever connects your ranks, here two ranks of this process and a
// mailbox.
// Each operation ENQUEUES its work; the queue's thread runs it while the trainer computes.
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include <acco/acco.hpp>

// [backend]
struct mailbox {  // where the two ranks show each other a pointer
  void const* shown[2] = {};
  std::barrier<> meet{2};
};

class pair_backend {
 public:
  pair_backend(mailbox& box, int rank) : box_(&box), rank_(rank) {}
  int rank() const { return rank_; }
  int size() const { return 2; }

  template <class T>
  void all_reduce(acco::host_queue& queue, acco::partial<T const> in, acco::replicated<T> out) {
    exchange(queue, in.local().data(), [=](T const* zero, T const* one) {
      for (std::size_t i = 0; i < out.whole().size(); ++i) out.whole()[i] = zero[i] + one[i];
    });
  }
  template <class Gradient, class Sum>  // the input is two slices long; this rank gets the sum of its own slice
  void reduce_scatter(acco::host_queue& queue, acco::partial<Gradient const> in, acco::sharded<Sum> out) {
    exchange(queue, in.local().data(),
             [out, at = out.slice().size() * static_cast<std::size_t>(rank_)](Gradient const* zero, Gradient const* one) {
               for (std::size_t i = 0; i < out.slice().size(); ++i) out.slice()[i] = Sum(zero[at + i]) + Sum(one[at + i]);
             });
  }
  template <class T>  // the input may lie inside the output
  void all_gather(acco::host_queue& queue, acco::sharded<T const> in, acco::replicated<T> out) {
    exchange(queue, in.slice().data(), [in, out](T const* zero, T const* one) {
      const std::size_t slice = in.slice().size();
      if (slice != 0 && out.whole().data() != zero) std::memcpy(out.whole().data(), zero, in.slice().size_bytes());
      if (slice != 0 && out.whole().data() + slice != one) std::memcpy(out.whole().data() + slice, one, in.slice().size_bytes());
    });
  }
  template <class T>
  void broadcast(acco::host_queue& queue, acco::replicated<T> whole, int root) {
    exchange(queue, whole.whole().data(), [whole, root, rank = rank_](T const* zero, T const* one) {
      if (rank != root) std::memcpy(whole.whole().data(), root == 0 ? zero : one, whole.whole().size_bytes());
    });
  }

 private:
  template <class T, class Work>
  void exchange(acco::host_queue& queue, T const* mine, Work work) {
    queue.enqueue([box = box_, rank = rank_, mine, work] {
      box->shown[rank] = mine;
      box->meet.arrive_and_wait();  // both pointers are there
      work(static_cast<T const*>(box->shown[0]), static_cast<T const*>(box->shown[1]));
      box->meet.arrive_and_wait();  // both ranks have read
    });
  }
  mailbox* box_;
  int rank_;
};
static_assert(acco::collective_backend<pair_backend, acco::host_queue>);
// [backend]

int main() {
  mailbox box;
  std::vector<float> ends(2);
  const auto rank_main = [&](int rank) {
    acco::optimizer training{acco::two_phase{}, acco::adamw{.learning_rate = 0.05}, acco::host_storage<float>{},
                             pair_backend(box, rank), 11};
    training.initialize(std::vector<float>(11, 1.0F));
    while (training.samples() < 600) {
      for (std::size_t i = 0; i < 11; ++i)
        training.gradients()[i] += training.parameters()[i] - static_cast<float>(rank);  // the ranks' optima differ
      training.accumulated(1);
    }
    training.finish();
    ends[static_cast<std::size_t>(rank)] = training.parameters()[10];
  };
  {
    const std::jthread zero(rank_main, 0), one(rank_main, 1);
  }
  std::printf("two ranks over a mailbox: parameters[10] = %.3f\n", static_cast<double>(ends[0]));
  if (ends[0] != ends[1] || std::abs(ends[0] - 0.5F) > 0.05F) throw std::runtime_error("the ranks did not meet in the middle");
}
