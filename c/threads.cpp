// SPDX-License-Identifier: Apache-2.0
#include <exception>

#include <acco/collective/solo.hpp>
#include <acco/collective/threads.hpp>

#include "backend.hpp"
#include "library.hpp"

namespace acco_c {
namespace {

/// What a rank's function has returned, on its way out of threads_backend::run, which tells causes from consequences by
/// type.
struct rank_failed : std::exception {
  failure its;
  explicit rank_failed(failure const& of) noexcept : its(of) {}
  [[nodiscard]] char const* what() const noexcept override { return its.words; }
};
struct rank_lost_another : acco::peer_error {
  failure its;
  explicit rank_lost_another(failure const& of) noexcept : peer_error({}, acco::text(), acco::text()), its(of) {}
  [[nodiscard]] char const* what() const noexcept override { return its.words; }
};

}  // namespace

std::shared_ptr<carrier> make_solo() { return std::make_shared<carrier_of<acco::solo_backend>>(acco::solo_backend{}); }

acco_status run_threads(int ranks, acco_rank_function function, void* user) {
  failure its;
  try {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& mine) {
      acco_world world{std::make_shared<carrier_of<acco::threads_backend>>(mine), true};
      const acco_status status = function(&world, user);
      if (status == ACCO_OK) return;
      failure ended = last_failure();
      if (ended.rank < 0) ended.rank = mine.rank();  // a callback's own number, say
      if (ended.status != status) {                  // no call's, but its own
        ended = failure{};
        ended.status = status;
        ended.rank = mine.rank();
        ended.say(
            acco::text("acco: rank ", mine.rank(), ": the function that acco_run_threads was given returned ", status).view());
      }
      if (status == ACCO_ERROR_PEER) throw rank_lost_another(ended);
      throw rank_failed(ended);
    });
    return ACCO_OK;
  } catch (rank_failed const& e) {
    its = e.its;
  } catch (rank_lost_another const& e) {
    its = e.its;
  }
  its.number = last_failure().number + 1;
  last_failure() = its;
  return its.status;
}

}  // namespace acco_c
