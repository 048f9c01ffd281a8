// SPDX-License-Identifier: Apache-2.0
// Messages over one MPI communicator: MPI_Isend, MPI_Irecv, and MPI_Test by whoever makes progress.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

#include "acco/clock.hpp"
#include "acco/error.hpp"
#include "acco/network/message_transport.hpp"
#include "acco/network/mpi_options.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Messages over one communicator. MPI calls are made by one thread at a time, whichever it is.
class mpi_transport {
 public:
  /// MPI sends messages of up to about 64 KiB at once; longer ones wait for the receiver's answer, which on a busy link
  /// queues behind the data of the other direction (measured: docs/performance.md).
  static constexpr std::size_t largest_message = std::size_t{60} << 10U;

  /// A message under way. Destroyed before it is complete, it is cancelled as far as MPI can.
  class request {
   public:
    request(mpi_transport& owner, MPI_Request handle, std::size_t bytes, bool incoming) noexcept
        : owner_(&owner), handle_(handle), bytes_(bytes), incoming_(incoming) {}
    request(request&& other) noexcept
        : owner_(other.owner_),
          handle_(std::exchange(other.handle_, MPI_REQUEST_NULL)),
          bytes_(other.bytes_),
          incoming_(other.incoming_) {}
    request& operator=(request&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(handle_, other.handle_);
      std::swap(bytes_, other.bytes_);
      std::swap(incoming_, other.incoming_);
      return *this;
    }
    request(request const&) = delete;
    request& operator=(request const&) = delete;
    ~request() { owner_->forget(handle_, incoming_); }

   private:
    friend mpi_transport;
    mpi_transport* owner_;
    MPI_Request handle_;
    std::size_t bytes_;
    bool incoming_;
  };

  /// Collective over `group`, which is duplicated.
  mpi_transport(MPI_Comm group, mpi_options const& chosen)
      : options_(chosen), calls_(thread_level() == MPI_THREAD_MULTIPLE ? own_calls_ : calls_of_process()) {
    const int level = thread_level();
    {
      const std::lock_guard lock(calls_);
      MPI_Comm_rank(group, &rank_);
    }
    require_positive("mpi_options::deadline", options_.deadline, {.rank = rank_, .round = -1, .phase = "start-up"});
    if (options_.progress == mpi_progress::helper_thread && level < MPI_THREAD_SERIALIZED) {
      throw usage_error(
          {.rank = rank_},
          text("MPI was initialized with thread level ",
               level == MPI_THREAD_SINGLE ? std::string_view("MPI_THREAD_SINGLE") : "MPI_THREAD_FUNNELED",
               ", and mpi_progress::helper_thread makes MPI calls on a thread of its own"),
          text("Ask MPI_Init_thread for MPI_THREAD_MULTIPLE (MPI_THREAD_SERIALIZED is enough if the program itself makes "
               "no MPI calls while it trains), or choose mpi_progress::poll"));
    }
    duplicate(group);
    const std::lock_guard lock(calls_);
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_size(communicator_, &size_);
    int* bound = nullptr;
    int found = 0;
    MPI_Comm_get_attr(communicator_, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    if (found != 0 && *bound > 0) tag_bound_ = *bound;
    mpi_advice::on_environment(rank_, options_);
    mpi_advice::on_cores(rank_, size_, options_);
  }
  mpi_transport(mpi_transport const&) = delete;
  mpi_transport& operator=(mpi_transport const&) = delete;
  ~mpi_transport() {
    if (left_ || !usable()) return;
    const std::lock_guard lock(calls_);
    MPI_Comm_free(&communicator_);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// MPI tells none.
  [[nodiscard]] double round_trip() const noexcept { return 0; }
  [[nodiscard]] mpi_options const& options() const noexcept { return options_; }

  /// The ranks of one color, until the object ends.
  class part {
   public:
    /// Collective, and MPI knows no deadline for it: when all ranks are known to have come.
    part(mpi_transport const& whole, int color, int key) : calls_(whole.calls_) {
      const std::lock_guard lock(calls_);
      whole.check_start(MPI_Comm_split(whole.communicator_, color, key, &handle_), "MPI_Comm_split");
    }
    part(part const&) = delete;
    part& operator=(part const&) = delete;
    ~part() {
      if (!usable()) return;
      const std::lock_guard lock(calls_);
      MPI_Comm_free(&handle_);
    }
    [[nodiscard]] MPI_Comm get() const noexcept { return handle_; }

   private:
    std::mutex& calls_;
    MPI_Comm handle_ = MPI_COMM_NULL;
  };

  [[nodiscard]] request send(int to, message_label label, void const* from, std::size_t bytes) {
    const std::lock_guard lock(calls_);
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, to, tag(label), communicator_, &handle));
    return {*this, handle, bytes, false};
  }
  [[nodiscard]] request receive(int from, message_label label, void* to, std::size_t bytes) {
    const std::lock_guard lock(calls_);
    MPI_Request handle = MPI_REQUEST_NULL;
    check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, from, tag(label), communicator_, &handle));
    return {*this, handle, bytes, true};
  }

  /// Asks MPI, several times: Open MPI looks at its sockets only every few calls.
  delivery complete(request& which, double) {
    constexpr int attempts = 10;
    if (!usable()) throw delivery_failure{text("MPI was finalized while this message was under way")};
    const std::lock_guard lock(calls_);
    warn_of_neglect();
    if (which.handle_ == MPI_REQUEST_NULL) return delivery::done;
    for (int k = 0; k < attempts; ++k) {
      int done = 0;
      MPI_Status status;
      if (const int code = MPI_Test(&which.handle_, &done, &status); code != MPI_SUCCESS) {
        int kind = code;
        MPI_Error_class(code, &kind);
        if (kind == MPI_ERR_TRUNCATE)
          throw delivery_failure{text("it sent more than the ", which.bytes_, " bytes that were expected: it makes other calls"),
                                 true};
        check(code);
      }
      if (done == 0) continue;
      int got = 0;
      MPI_Get_count(&status, MPI_BYTE, &got);
      if (which.incoming_ && got != static_cast<int>(which.bytes_))
        throw delivery_failure{text("it sent ", got, " bytes where ", which.bytes_, " were expected: it makes other calls"),
                               true};
      asked_ = 0;
      return delivery::done;
    }
    asked_ = steady_seconds();
    return delivery::pending;
  }
  bool arrived(request& which) {
    try {
      return complete(which, 0) == delivery::done;
    } catch (delivery_failure const&) {
      return false;
    }
  }

  /// Tells every rank; waits at most a fifth of a second for that. The communicator is not freed: others may be gone.
  void leave(message_label label, void const* from, std::size_t bytes) noexcept {
    left_ = true;
    if (!usable()) {
      std::fprintf(
          stderr,
          "acco: rank %d: an optimizer was destroyed without finish(), and behind MPI_Finalize: the others are not told.\n",
          rank_);
      return;
    }
    std::vector<request> farewells;
    farewells.reserve(static_cast<std::size_t>(size_));
    const double until = steady_seconds() + 0.2;
    for (int peer = 0; peer < size_; ++peer) {
      try {
        if (peer != rank_) farewells.push_back(send(peer, label, from, bytes));
      } catch (delivery_failure const&) {  // it is gone
      }
    }
    for (request& each : farewells) {
      try {
        while (complete(each, 0) == delivery::pending && steady_seconds() < until)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } catch (delivery_failure const&) {
      }
    }
  }

 private:
  static bool usable() noexcept {
    int finalized = 0;
    return MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0;
  }

  static void check(int code) {
    if (code == MPI_SUCCESS) return;
    char words[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, words, &length);
    throw delivery_failure{text(std::string_view(words, static_cast<std::size_t>(length)))};
  }
  void check_start(int code, char const* call) const {
    try {
      check(code);
    } catch (delivery_failure const& failure) {
      throw peer_error({.rank = rank_, .round = -1, .phase = "start-up"}, text(call, " failed: ", failure.reason),
                       text("Check that every rank is alive: look at the others' output, and at what the launcher says"));
    }
  }
  /// MPI_Comm_dup would spin until all ranks have come.
  void duplicate(MPI_Comm group) {
    const double from = steady_seconds();
    auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    MPI_Request handle = MPI_REQUEST_NULL;
    for (int done = 0; done == 0;) {
      {
        const std::lock_guard lock(calls_);
        if (handle == MPI_REQUEST_NULL) check_start(MPI_Comm_idup(group, made.get(), &handle), "MPI_Comm_idup");
        check_start(MPI_Test(&handle, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
      }
      if (done != 0) {
        communicator_ = *made;
        return;
      }
      if (steady_seconds() - from > options_.deadline) {
        (void)made.release();  // MPI writes there if that rank comes after all: a collective cannot be taken back
        throw deadline_error({.rank = rank_, .round = -1, .phase = "start-up"},
                             text("a rank did not make its mpi_backend within ", options_.deadline, " s"),
                             text("Every rank of the communicator makes one, in the same order; or raise mpi_options::deadline"));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  /// Throws where MPI has not been initialized.
  static int thread_level() {
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized == 0 || finalized != 0) {
      throw usage_error(
          {}, text("mpi_backend was made ", initialized == 0 ? "before MPI was initialized" : "after MPI had been finalized"),
          text("MPI lives once a process: make it after MPI_Init_thread and before MPI_Finalize, or use acco::mpi_backend::run"));
    }
    MPI_Query_thread(&level);
    return level;
  }
  /// Below MPI_THREAD_MULTIPLE no two threads of a process may call MPI at once, whatever the communicator.
  static std::mutex& calls_of_process() {
    static std::mutex one;
    return one;
  }
  /// Labels repeat after a while; messages with one label are delivered in order.
  [[nodiscard]] int tag(message_label label) const noexcept {
    const std::uint32_t kinds = collective_kinds;
    const std::uint32_t cycle = static_cast<std::uint32_t>(tag_bound_) / (kinds * message_channels);
    return static_cast<int>((label.channel * cycle + label.sequence % cycle) * kinds +
                            static_cast<std::uint32_t>(label.operation));
  }
  void forget(MPI_Request& handle, bool incoming) noexcept {
    if (handle == MPI_REQUEST_NULL || !usable()) return;
    const std::lock_guard lock(calls_);
    if (incoming) MPI_Cancel(&handle);
    MPI_Request_free(&handle);
  }

  /// With mpi_progress::poll the trainer has to ask often enough.
  void warn_of_neglect() {
    constexpr double long_ago = 0.02;
    constexpr unsigned too_often = 20;
    if (options_.progress != mpi_progress::poll || asked_ == 0 || steady_seconds() - asked_ < long_ago) return;
    if (++neglected_ >= too_often) mpi_advice::on_polls(rank_, neglected_, long_ago, options_);
  }

  mpi_options options_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  int tag_bound_ = 32767;
  std::mutex own_calls_;
  std::mutex& calls_;  // held around calls of MPI
  std::atomic<bool> left_ = false;
  double asked_ = 0;  // when a message was last found pending
  unsigned neglected_ = 0;
};
static_assert(message_transport<mpi_transport>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
