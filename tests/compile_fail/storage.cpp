// SPDX-License-Identifier: Apache-2.0
// A storage that lacks something fails with one sentence, and nothing else. tests/proof/storage_members.cpp goes
// through all members.
#include <acco/acco.hpp>

using host = acco::host_storage<float>;
template <class Storage = host, class Schedule = acco::synchronous<>>
using training = acco::optimizer<Schedule, acco::sgd, Storage, acco::solo_backend>;

struct nothing {};
struct misspelt : host {
  static void clear_if();
};
struct plain : host {
  static void decode_sum();
  static void combine();
};
struct elsewhere : host {
  static constexpr bool host_memory = false;
};
using acco::storage_traits;
struct other_traits : host {
  static constexpr int traits = 0;
};
/// Declares what `host` does, and `digest` is misspelt, as if it were not there.
struct misspelt_digest : host {
  static void digest();
};
struct undeclared_digest : host {
  static constexpr storage_traits traits{.stages = true};
};
struct misspelt_staging : host {
  static void allocate_staging();
};
struct undeclared_stage : host {
  static constexpr storage_traits traits{.digests = true};
};
struct takes_no_blocks : host {
  static constexpr storage_traits traits{.takes_sums = true, .digests = true, .stages = true};
  static void take_sums(queue&, float const*, float*, std::size_t, bool, double*);
};
struct undeclared_sums : host {
  static void take_sums(queue&, float const*, float*, std::size_t, bool, double*);
};
struct makes_no_queue : host {
  static constexpr storage_traits traits{.digests = true, .stages = true, .makes_queue = true};
};
struct undeclared_maker : host {
  [[nodiscard]] queue make_queue(acco::solo_backend const&) const;
};
struct other_traits_of_queue : acco::host_queue {
  static constexpr int traits = 0;
};
struct keeps_nothing : acco::host_queue {
  static constexpr acco::queue_traits traits{.works_elsewhere = true};
  void run_out();
};
struct undeclared_keeper : acco::host_queue {
  void keep(acco::host_buffer&&);
};
template <class Queue>
struct with_queue : host {
  using queue = Queue;
};

struct timeless_queue : acco::host_queue {
  void stamp() const;
};
struct timeless : host {
  using queue = timeless_queue;
};

void use() {
  training<> fine{{}, {}, {}, {}, 1};
  training<plain> does_not_encode{{}, {}, {}, {}, 1};
#if defined(STORAGE_WITHOUT_TYPES)  // expect: the storage lacks one of the types parameter_type, gradient_type, master_type,
  {
    // sum_type
    training<nothing> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STORAGE_WITHOUT_A_MEMBER)  // expect: acco: the storage lacks `static clear_if(queue&, bool const* wanted, T*, count)`
  {
    training<misspelt> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STORAGE_THAT_CANNOT_ENCODE)  // expect: acco: gradients are to travel encoded: the storage lacks `decode_sum`
  {
    training<plain, acco::synchronous<acco::block_int8<>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STORAGE_THAT_CANNOT_COMBINE)  // expect: acco: the schedule has own_corrected or a reference point: the storage lacks
  {
    training<plain, acco::two_phase<acco::fixed_pace, acco::own_corrected>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(PRODUCTS_ELSEWHERE)  // expect: acco: gradients are to travel as products of thin matrices (power_sgd)
  {
    training<elsewhere, acco::synchronous<acco::with_error_feedback<acco::power_sgd>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(PLANS_ELSEWHERE)  // expect: acco: gradients are to travel as a plan says (planned)
  {
    training<elsewhere, acco::synchronous<acco::with_error_feedback<acco::auto_encoding>>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(OTHER_TRAITS)  // expect: acco: the storage's `traits` is no `static constexpr acco::storage_traits`
  {
    training<other_traits> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(DIGESTS_WITHOUT_MEMBER)  // expect: acco: the storage's traits declare `digests`, and it lacks `static digest(queue&,
  {
    training<misspelt_digest> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(DIGEST_WITHOUT_TRAIT)  // expect: acco: the storage has `digest`, and its traits do not declare `digests`
  {
    training<undeclared_digest> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STAGES_WITHOUT_MEMBER)  // expect: acco: the storage's traits declare `stages`, and it lacks `static stage(queue&,
  {
    training<misspelt_staging> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(STAGE_WITHOUT_TRAIT)  // expect: acco: the storage has `stage` or `allocate_staging`, and its traits do not declare
  {
    training<undeclared_stage> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(TAKES_SUMS_WITHOUT_MEMBER)  // expect: acco: the storage's traits declare `takes_sums`, and it lacks `static
                                        // take_sums(
  {
    training<takes_no_blocks> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(TAKE_SUMS_WITHOUT_TRAIT)  // expect: acco: the storage has `take_sums` or `take_blocks`, and its traits do not declare
  {
    training<undeclared_sums> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(MAKES_QUEUE_WITHOUT_MEMBER)  // expect: acco: the storage's traits declare `makes_queue`, and it lacks `queue
                                         // make_queue(
  {
    training<makes_no_queue> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(MAKE_QUEUE_WITHOUT_TRAIT)  // expect: acco: the storage has `make_queue`, and its traits do not declare `makes_queue`
  {
    training<undeclared_maker> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(OTHER_TRAITS_OF_A_QUEUE)  // expect: acco: the storage's queue's `traits` is no `static constexpr acco::queue_traits`
  {
    training<with_queue<other_traits_of_queue>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(ELSEWHERE_WITHOUT_MEMBER)  // expect: acco: the traits of the storage's queue declare `works_elsewhere`, and it lacks
  {
    training<with_queue<keeps_nothing>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(KEEP_WITHOUT_TRAIT)  // expect: acco: the storage's queue has `keep` or `run_out`, and its traits do not declare
  {
    training<with_queue<undeclared_keeper>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(QUEUE_WITHOUT_A_MEMBER)  // expect: acco: the storage's queue lacks `stamp(tell)`, which calls tell(seconds)
  {
    training<timeless> wrong{{}, {}, {}, {}, 1};
  }
#endif
}
