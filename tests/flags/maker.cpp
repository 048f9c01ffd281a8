// SPDX-License-Identifier: Apache-2.0
#include "maker.hpp"

#include <acco/optimizer.hpp>
#include <acco/outer.hpp>
#include <acco/rule/sgd.hpp>
#include <acco/storage/host.hpp>

namespace maker {

acco::any_optimizer<float> make(acco::threads_backend const& world) {
  return acco::optimizer{acco::local_updates{.method = acco::diloco, .steps = 2}, acco::sgd{}, acco::host_storage<float>{}, world,
                         10};
}
void fail() { throw acco::usage_error({}, acco::text("nothing is wrong"), acco::text("Catch it")); }
bool catches(void (*call)()) {
  try {
    call();
  } catch (acco::usage_error const&) {
    return true;
  } catch (...) {  // another type, or a copy of this one
  }
  return false;
}

}  // namespace maker
