// SPDX-License-Identifier: Apache-2.0
// Local updates over what cannot carry them; CMakeLists.txt says how the sections are read.
#include <cstddef>
#include <utility>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

/// A backend that neither splits nor duplicates.
struct whole_world {
  static constexpr acco::backend_traits traits{};
  acco::threads_backend in;
  int rank() const { return in.rank(); }
  int size() const { return in.size(); }
  template <class... A>
  void all_reduce(A&&... a) {
    in.all_reduce(std::forward<A>(a)...);
  }
  template <class Q, class G, class S>
  void reduce_scatter(Q& queue, acco::partial<G const> from, acco::sharded<S> to) {
    in.reduce_scatter(queue, from, to);
  }
  template <class... A>
  void all_gather(A&&... a) {
    in.all_gather(std::forward<A>(a)...);
  }
  template <class Q, class T>
  void broadcast(Q& queue, acco::replicated<T> whole, int root) {
    in.broadcast(queue, whole, root);
  }
};
struct elsewhere : acco::host_storage<float> {
  static constexpr bool host_memory = false;
};

void train(acco::threads_backend world, whole_world whole) {
  acco::optimizer fine{acco::local_updates{.method = acco::diloco}, acco::sgd{}, acco::host_storage<float>{}, world,
                       std::size_t{1}};
  acco::optimizer fine_too{acco::synchronous{}, acco::sgd{}, acco::host_storage<float>{}, whole, std::size_t{1}};
#if defined(BACKEND_WITHOUT_SPLIT)  // expect: acco: local updates need a backend that `splits` and `duplicates`
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco}, acco::sgd{}, acco::host_storage<float>{}, whole,
                             std::size_t{1}};
  }
#endif
#if defined(STORAGE_ELSEWHERE)  // expect: acco: local updates need storage in host memory so far
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco}, acco::sgd{}, elsewhere{}, world, std::size_t{1}};
  }
#endif
#if defined(REFERENCE_POINT_OF_A_WORKER)  // expect: acco: local updates move what a reference point belongs to
  {
    acco::optimizer training{acco::local_updates{.inner = acco::masha{}}, acco::sgd{}, acco::host_storage<float>{}, world,
                             std::size_t{1}};
  }
#endif
#if defined(AVERAGE_OF_A_WORKER)  // expect: acco: the anchor of local updates is not what gpa averages
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco}, acco::gpa{acco::sgd{}}, acco::host_storage<float>{},
                             world, std::size_t{1}};
  }
#endif
#if defined(GROUPS_OF_WORKERS)  // expect: acco: workers are the groups of local updates
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco, .exchange = acco::between_groups<acco::block_int8<>>{}},
                             acco::sgd{}, acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(NO_OUTER_RULE)  // expect: acco: the update rule lacks `static constexpr std::size_t slot_count`
  {
    struct none {};
    acco::optimizer training{acco::local_updates{.method = acco::waiting<none>{}}, acco::sgd{}, acco::host_storage<float>{},
                             world, std::size_t{1}};
  }
#endif
#if defined(EAGER_WITHOUT_RATE)  // expect: acco: an eager worker knows the rate at which its share will count
  {
    struct rateless : acco::averaging {};
    acco::optimizer training{acco::local_updates{.method = acco::eager<rateless>{}}, acco::sgd{}, acco::host_storage<float>{},
                             world, std::size_t{1}};
  }
#endif
#if defined(OWN_CHANGES)  // expect: acco: own_slice and own_corrected are for estimates: an exchange of local updates needs
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco, .exchange = acco::own_slice{}}, acco::sgd{},
                             acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(ANCHOR_UPDATED_BY_ALL)  // expect: acco: anchors are cut over ranks: updated_by_all is for a schedule alone
  {
    acco::optimizer training{acco::local_updates{.exchange = acco::coded<acco::block_int4<>, acco::updated_by_all>{}},
                             acco::sgd{}, acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(WORKER_UPDATED_BY_ALL)  // expect: acco: a worker's state is cut over its ranks: updated_by_all is for a schedule
                                    // alone
  {
    using inner = acco::synchronous<acco::coded<acco::block_int4<>, acco::updated_by_all>>;
    acco::optimizer training{acco::local_updates{.inner = inner{}}, acco::sgd{}, acco::host_storage<float>{}, world,
                             std::size_t{1}};
  }
#endif
#if defined(CORRECTED_CHANGES)  // expect: acco: own_slice and own_corrected are for estimates: an exchange of local updates needs
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco, .exchange = acco::own_corrected{}}, acco::sgd{},
                             acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(PRODUCTS_OF_CHANGES)  // expect: acco: an exchange of local updates takes encodings of blocks, no codes of matrices
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco, .exchange = acco::power_sgd{}}, acco::sgd{},
                             acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(SUMMED_STATES)  // expect: acco: what a worker's code has lost goes to the others when it leaves
  {
    acco::optimizer training{
        acco::local_updates{.method = acco::diloco, .exchange = acco::with_feedback{acco::block_int4{}, acco::ef21{}}},
        acco::sgd{}, acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(SPARSE_WITH_MOMENTUM)  // expect: acco: exchanges travel in a code that may fall behind
  {
    acco::optimizer training{acco::local_updates{.method = acco::diloco, .exchange = acco::sparse_exchange}, acco::sgd{},
                             acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
#if defined(NO_INNER_SCHEDULE)  // expect: acco: the schedule lacks `round_plan plan(std::size_t round) const`
  {
    struct no_schedule {};
    acco::optimizer training{acco::local_updates{.method = acco::diloco, .inner = no_schedule{}}, acco::sgd{},
                             acco::host_storage<float>{}, world, std::size_t{1}};
  }
#endif
}
