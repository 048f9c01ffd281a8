// SPDX-License-Identifier: Apache-2.0
// A storage that lacks something fails with one sentence, and nothing else. tests/proof/storage_members.cpp goes through all
// members.
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
#if defined(STORAGE_THAT_CANNOT_COMBINE)  // expect: acco: estimates are own_corrected: the storage lacks `static combine(queue&,
  {
    training<plain, acco::two_phase<acco::fixed_pace, acco::own_corrected>> wrong{{}, {}, {}, {}, 1};
  }
#endif
#if defined(QUEUE_WITHOUT_A_MEMBER)  // expect: acco: the storage's queue lacks `stamp(tell)`, which calls tell(seconds)
  {
    training<timeless> wrong{{}, {}, {}, {}, 1};
  }
#endif
}
