// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL over the stand-in for the CUDA runtime: ranks are threads, and meet in host functions of their
// streams. It keeps books: what was made, freed and how, and every use of what was freed. Handles are never really
// freed, so such a use is counted, not undefined. It proves nothing about NCCL.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "acco/bfloat16.hpp"
#include "acco/half.hpp"

#define NCCL_VERSION(X, Y, Z) (((X) * 10000) + ((Y) * 100) + (Z))
#ifndef NCCL_VERSION_CODE
#define NCCL_VERSION_CODE NCCL_VERSION(2, 28, 9)
#endif

enum ncclResult_t { ncclSuccess, ncclSystemError, ncclInvalidArgument, ncclRemoteError, ncclInProgress };
enum ncclDataType_t { ncclChar, ncclFloat, ncclDouble, ncclHalf, ncclBfloat16 };
enum ncclRedOp_t { ncclSum };
enum { NCCL_WIN_COLL_SYMMETRIC = 1 };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking = 1, maxCTAs = 0;
};
#define NCCL_CONFIG_INITIALIZER \
  {                             \
  }
using ncclWindow_t = std::size_t*;

namespace emulated::nccl {
/// The ranks of a communicator, and where they meet.
struct group {
  struct meeting {
    std::vector<void const*> from;
    int came = 0, left = 0;
    bool broken = false;  // somebody was aborted before all had come
  };
  explicit group(int ranks) : size(ranks) {}
  int size;
  int came = 0;
  std::map<std::size_t, meeting> meetings;                               // of collectives, by number
  std::map<std::size_t, std::vector<std::tuple<int, int, int>>> splits;  // colour, key, rank
  std::map<std::size_t, std::map<int, std::shared_ptr<group>>> parts;    // of a split, by colour
  std::map<std::size_t, int> registering;
};
struct books {
  std::mutex mutex;
  std::condition_variable changed;
  int made = 0, destroyed = 0, aborted = 0, finalized = 0, used_after_free = 0, freed_twice = 0;
  int registered = 0, deregistered = 0, memory = 0;
  bool fails = false;                            ///< every communicator tells that a peer is gone
  bool stuck = false;                            ///< no flush ends
  std::function<double()> working;               ///< seconds that NCCL works at a collective
                                                 ///< before it is accepted; empty: none
  bool held = false;                             ///< while it is set, no collective is accepted
  std::vector<int> log;                          ///< of collectives as they run on device 0: which communicator
  std::map<int, std::shared_ptr<group>> groups;  // by identifier
  int identifiers = 0;
  std::vector<std::unique_ptr<struct communicator>> all;
  void clear();
};
inline books& book() {
  static books one;
  return one;
}
struct communicator {
  std::shared_ptr<group> of;
  int rank = 0, number = 0, device = 0;
  bool alive = true, gone = false;
  std::size_t collectives = 0, splits = 0, windows = 0;
  std::vector<std::unique_ptr<std::size_t>> registrations;
  std::function<ncclResult_t()> pending;  // under the lock: what an asynchronous call waits for, and does in the end
};
inline void books::clear() {
  made = destroyed = aborted = finalized = used_after_free = freed_twice = registered = deregistered = memory = 0;
  fails = stuck = held = false;
  working = nullptr;
  log.clear();
}
/// Under the lock.
inline communicator* make(std::shared_ptr<group> of, int rank) {
  books& b = book();
  b.all.push_back(std::make_unique<communicator>());
  communicator* const fresh = b.all.back().get();
  fresh->of = std::move(of);
  fresh->rank = rank;
  fresh->number = ++b.made;
  cudaGetDevice(&fresh->device);
  return fresh;
}
inline bool usable(communicator* c) {
  if (c != nullptr && c->alive) return true;
  ++book().used_after_free;
  return false;
}
/// A collective, enqueued when NCCL has accepted it: every rank brings `from`; work(sources) copies when all have come;
/// who is aborted goes on without.
template <class Work>
ncclResult_t meet(communicator* c, cudaStream_t stream, void const* from, Work work) {
  books& b = book();
  const std::lock_guard lock(b.mutex);
  if (!usable(c)) return ncclInvalidArgument;
  if (c->pending) return ncclInvalidArgument;
  const std::size_t number = c->collectives++;
  auto run = [c, number, from, work, &b] {
    std::unique_lock inner(b.mutex);
    if (c->device == 0) b.log.push_back(c->number);
    group::meeting& here = c->of->meetings[number];
    here.from.resize(static_cast<std::size_t>(c->of->size));
    here.from[static_cast<std::size_t>(c->rank)] = from;
    ++here.came;
    b.changed.notify_all();
    b.changed.wait(inner, [&] { return (here.came == c->of->size && !here.broken) || c->gone; });
    here.broken = here.broken || here.came != c->of->size;
    if (here.broken) return;
    const std::vector<void const*> sources = here.from;
    work(sources, c->rank);
    ++here.left;
    b.changed.notify_all();
    b.changed.wait(inner, [&] { return here.left == c->of->size; });
  };
  if (!b.working && !b.held) {
    of(stream).enqueue(run);
    return ncclSuccess;
  }
  const auto until =
      clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(b.working ? b.working() : 0.0));
  c->pending = [stream, run, until, &b] {
    if (b.held || clock::now() < until) return ncclInProgress;
    of(stream).enqueue(run);
    return ncclSuccess;
  };
  return ncclInProgress;
}
template <class T>
void add(std::vector<void const*> const& from, std::size_t offset, void* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T sum = static_cast<T const*>(from[0])[offset + i];  // in its own type, rounded at every step
    for (std::size_t k = 1; k < from.size(); ++k) sum += static_cast<T const*>(from[k])[offset + i];
    static_cast<T*>(to)[i] = sum;
  }
}
inline std::size_t size_of(ncclDataType_t type) {
  return type == ncclDouble ? 8 : type == ncclFloat ? 4 : type == ncclChar ? 1 : 2;
}
inline void add(ncclDataType_t type, std::vector<void const*> const& from, std::size_t offset, void* to, std::size_t count) {
  if (type == ncclDouble) return add<double>(from, offset, to, count);
  if (type == ncclFloat) return add<float>(from, offset, to, count);
  if (type == ncclHalf) return add<acco::half>(from, offset, to, count);
  if (type == ncclBfloat16) return add<acco::bfloat16>(from, offset, to, count);
  std::abort();
}
/// Point to point, as all-to-all uses it: between group start and end.
struct grouped {
  communicator* over = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<std::pair<void const*, std::size_t>> sends;
  std::vector<void*> receives;
};
inline thread_local grouped open_group;
}  // namespace emulated::nccl

using ncclComm_t = emulated::nccl::communicator*;

inline char const* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited" : "emulated";
}
inline char const* ncclGetLastError(ncclComm_t) { return "emulated"; }
inline ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(emulated::nccl::book().mutex);
  const int number = ++emulated::nccl::book().identifiers;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* to, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  namespace n = emulated::nccl;
  const std::lock_guard lock(n::book().mutex);
  int number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  auto& group = n::book().groups[number];
  if (!group) group = std::make_shared<n::group>(ranks);
  ++group->came;
  *to = n::make(group, rank);
  (*to)->pending = [all = group.get()] { return all->came == all->size ? ncclSuccess : ncclInProgress; };
  return ncclInProgress;
}
inline ncclResult_t ncclCommUserRank(ncclComm_t c, int* rank) {
  const std::lock_guard lock(emulated::nccl::book().mutex);
  if (!emulated::nccl::usable(c) || c->pending) return ncclInvalidArgument;
  *rank = c->rank;
  return ncclSuccess;
}
inline ncclResult_t ncclCommCount(ncclComm_t c, int* size) {
  const std::lock_guard lock(emulated::nccl::book().mutex);
  if (!emulated::nccl::usable(c) || c->pending) return ncclInvalidArgument;
  *size = c->of->size;
  return ncclSuccess;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* code) {
  namespace n = emulated::nccl;
  const std::lock_guard lock(n::book().mutex);
  if (!n::usable(c)) return ncclInvalidArgument;
  *code = n::book().fails ? ncclRemoteError : c->pending ? c->pending() : ncclSuccess;
  if (*code == ncclSuccess) c->pending = nullptr;
  return ncclSuccess;
}
namespace emulated::nccl {
inline ncclResult_t end(communicator* c, int books::* how) {
  books& b = book();
  const std::lock_guard lock(b.mutex);
  if (c == nullptr || !c->alive) {
    ++b.freed_twice;
    return ncclInvalidArgument;
  }
  c->alive = false;
  c->gone = true;
  ++(b.*how);
  b.changed.notify_all();
  return ncclSuccess;
}
}  // namespace emulated::nccl
inline ncclResult_t ncclCommAbort(ncclComm_t c) { return emulated::nccl::end(c, &emulated::nccl::books::aborted); }
inline ncclResult_t ncclCommDestroy(ncclComm_t c) { return emulated::nccl::end(c, &emulated::nccl::books::destroyed); }
inline ncclResult_t ncclCommFinalize(ncclComm_t c) {
  namespace n = emulated::nccl;
  const std::lock_guard lock(n::book().mutex);
  if (!n::usable(c)) return ncclInvalidArgument;
  ++n::book().finalized;
  if (n::book().stuck) c->pending = [] { return ncclInProgress; };
  return n::book().stuck ? ncclInProgress : ncclSuccess;
}
inline ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* to, ncclConfig_t*) {
  namespace n = emulated::nccl;
  const std::lock_guard lock(n::book().mutex);
  if (!n::usable(c) || c->pending) return ncclInvalidArgument;
  *to = nullptr;
  const std::size_t number = c->splits++;
  c->of->splits[number].emplace_back(color, key, c->rank);
  c->pending = [c, number, color, to] {
    auto& all = c->of->splits[number];
    if (static_cast<int>(all.size()) != c->of->size) return ncclInProgress;
    std::sort(all.begin(), all.end());
    const auto same = [color](auto const& each) { return std::get<0>(each) == color; };
    auto& part = c->of->parts[number][color];
    if (!part) part = std::make_shared<n::group>(static_cast<int>(std::count_if(all.begin(), all.end(), same)));
    int rank = 0;
    for (auto const& each : all) {
      if (!same(each)) continue;
      if (std::get<2>(each) == c->rank) break;
      ++rank;
    }
    *to = n::make(part, rank);
    return ncclSuccess;
  };
  return ncclInProgress;
}

inline ncclResult_t ncclMemAlloc(void** to, std::size_t bytes) {
  *to = emulated::allocate(bytes);
  const std::lock_guard lock(emulated::nccl::book().mutex);
  ++emulated::nccl::book().memory;
  return ncclSuccess;
}
inline ncclResult_t ncclMemFree(void* memory) {
  emulated::deallocate(memory);
  const std::lock_guard lock(emulated::nccl::book().mutex);
  --emulated::nccl::book().memory;
  return ncclSuccess;
}
inline ncclResult_t ncclCommWindowRegister(ncclComm_t c, void*, std::size_t, ncclWindow_t* to, int) {
  namespace n = emulated::nccl;
  const std::lock_guard lock(n::book().mutex);
  if (!n::usable(c) || c->pending) return ncclInvalidArgument;
  const std::size_t number = c->windows++;
  ++c->of->registering[number];
  c->pending = [c, number, to] {
    if (c->of->registering[number] != c->of->size) return ncclInProgress;
    c->registrations.push_back(std::make_unique<std::size_t>(number));
    *to = c->registrations.back().get();
    ++n::book().registered;
    return ncclSuccess;
  };
  return ncclInProgress;
}
inline ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t) {
  namespace n = emulated::nccl;
  const std::lock_guard lock(n::book().mutex);
  if (!n::usable(c)) return ncclInvalidArgument;
  ++n::book().deregistered;
  return ncclSuccess;
}

inline ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t c,
                                  cudaStream_t stream) {
  return emulated::nccl::meet(c, stream, from, [=](auto const& all, int) { emulated::nccl::add(type, all, 0, to, count); });
}
inline ncclResult_t ncclReduceScatter(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                                      ncclComm_t c, cudaStream_t stream) {
  return emulated::nccl::meet(c, stream, from, [=](auto const& all, int rank) {
    emulated::nccl::add(type, all, static_cast<std::size_t>(rank) * count, to, count);
  });
}
inline ncclResult_t ncclAllGather(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t c,
                                  cudaStream_t stream) {
  return emulated::nccl::meet(c, stream, from, [=](auto const& all, int) {
    const std::size_t bytes = count * emulated::nccl::size_of(type);
    for (std::size_t peer = 0; peer < all.size() && bytes != 0; ++peer)
      std::memmove(static_cast<char*>(to) + peer * bytes, all[peer], bytes);
  });
}
inline ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t c,
                                  cudaStream_t stream) {
  return emulated::nccl::meet(c, stream, from, [=](auto const& all, int) {
    if (count != 0) std::memmove(to, all[static_cast<std::size_t>(root)], count * emulated::nccl::size_of(type));
  });
}
inline ncclResult_t ncclGroupStart() {
  emulated::nccl::open_group = {};
  return ncclSuccess;
}
inline ncclResult_t ncclSend(void const* from, std::size_t count, ncclDataType_t type, int, ncclComm_t c, cudaStream_t stream) {
  auto& open = emulated::nccl::open_group;
  open.over = c;
  open.stream = stream;
  open.sends.emplace_back(from, count * emulated::nccl::size_of(type));
  return ncclSuccess;
}
inline ncclResult_t ncclRecv(void* to, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  emulated::nccl::open_group.receives.push_back(to);
  return ncclSuccess;
}
/// All sends to all ranks, in their order.
inline ncclResult_t ncclGroupEnd() {
  const auto open = std::make_shared<emulated::nccl::grouped>(std::move(emulated::nccl::open_group));
  emulated::nccl::open_group = {};
  if (open->over == nullptr) return ncclSuccess;
  return emulated::nccl::meet(open->over, open->stream, open.get(), [open](auto const& all, int rank) {
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      auto const& [from, bytes] = static_cast<emulated::nccl::grouped const*>(all[peer])->sends[static_cast<std::size_t>(rank)];
      if (bytes != 0) std::memcpy(open->receives[peer], from, bytes);
    }
  });
}
