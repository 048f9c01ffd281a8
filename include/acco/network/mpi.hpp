// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of an MPI job (component `mpi`). Collectives are acco's own over MPI_Isend and MPI_Irecv (exchange.hpp):
// MPI's make progress only inside MPI calls, so nothing would be hidden; here a helper thread, or the trainer, keeps asking.
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
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>
#include <sched.h>

#include "acco/clock.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/error.hpp"
#include "acco/network/exchange_backend.hpp"
#include "acco/network/message_transport.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Who makes MPI progress while the trainer computes.
enum class mpi_progress {
  helper_thread,  ///< the queue's thread asks MPI and sleeps in between, at most 1 ms; needs MPI_THREAD_SERIALIZED at least
  poll,           ///< the trainer, whenever it calls `training.poll()`: call it about every millisecond of computation
  none,           ///< nobody: communication happens when the trainer waits for it, and is not hidden
};

struct mpi_options {
  mpi_progress progress = mpi_progress::helper_thread;
  std::size_t piece_bytes = 0;  ///< of a rank's part that travels and is summed as one; 0: 128 KiB, less for more ranks
  double deadline = 600;        ///< seconds to wait for the other ranks when the communicator is duplicated
  void (*warn)(char const* sentence) = [](char const* sentence) {
    std::fprintf(stderr, "%s\n", sentence);
  };  ///< once per process
};

/// Messages over one communicator. MPI calls are made by one thread at a time, whichever it is.
class mpi_transport {
 public:
  /// MPI sends messages of up to about 64 KiB at once; longer ones wait for the receiver's answer, which on a busy link queues
  /// behind the data of the other direction (measured: docs/performance.md).
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
    warn_of_settings();
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
    const std::lock_guard lock(calls_);
    warn_of_neglect();
    if (which.handle_ == MPI_REQUEST_NULL) return delivery::done;
    for (int k = 0; k < attempts; ++k) {
      int done = 0;
      MPI_Status status;
      check(MPI_Test(&which.handle_, &done, &status));
      if (done == 0) continue;
      int got = 0;
      MPI_Get_count(&status, MPI_BYTE, &got);
      if (which.incoming_ && got != static_cast<int>(which.bytes_))
        throw delivery_failure{text("it sent ", got, " bytes where ", which.bytes_, " were expected: it makes other calls")};
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
    int initialized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      throw usage_error({}, text("mpi_backend was made before MPI was initialized"),
                        text("Call MPI_Init_thread first, or use acco::mpi_backend::run"));
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

  void warn_once(std::atomic<bool>& warned, text const& sentence) {
    if (!warned.exchange(true) && options_.warn != nullptr) options_.warn(sentence.c_str());
  }
  void warn_of_settings() {
    static std::atomic<bool> warned_of_async = false, warned_of_binding = false;  // once per process
    for (char const* name : {"MPICH_ASYNC_PROGRESS", "MPIR_CVAR_ASYNC_PROGRESS"}) {
      char const* value = std::getenv(name);
      if (value != nullptr && *value != '\0' && *value != '0') {
        warn_once(warned_of_async, text("acco: rank ", rank_, ": ", name, "=", value,
                                        " starts a thread that spins on a core which the computation needs. Set ", name,
                                        "=0: mpi_progress::helper_thread makes progress and sleeps in between"));
      }
    }
    if (options_.progress != mpi_progress::helper_thread) return;
    int neighbours = size_;  // ranks on this host, as the launchers tell
    for (char const* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
      char const* value = std::getenv(name);
      if (value != nullptr && std::atoi(value) > 0) neighbours = std::atoi(value);
    }
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    const unsigned cores = std::thread::hardware_concurrency();
    if (CPU_COUNT(&allowed) == 1 && cores > static_cast<unsigned>(neighbours)) {  // there are some to spare
      warn_once(warned_of_binding,
                text("acco: rank ", rank_, ": this process may use 1 of ", cores,
                     " cores, so the thread that makes MPI progress takes its time from the computation. Start with "
                     "`mpirun --bind-to none` (Open MPI) or `mpiexec -bind-to none` (MPICH)"));
    }
  }
  /// With mpi_progress::poll the trainer has to ask often enough.
  void warn_of_neglect() {
    constexpr double long_ago = 0.02;
    constexpr int too_often = 20;
    static std::atomic<bool> warned = false;
    if (options_.progress != mpi_progress::poll || asked_ == 0 || steady_seconds() - asked_ < long_ago ||
        ++neglected_ < too_often)
      return;
    warn_once(warned, text("acco: rank ", rank_, ": messages waited more than ", 1000 * long_ago, " ms for a poll ", neglected_,
                           " times, so communication is not hidden. Call training.poll() about every millisecond of computation, "
                           "or choose mpi_progress::helper_thread"));
  }

  mpi_options options_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  int tag_bound_ = 32767;
  std::mutex own_calls_;
  std::mutex& calls_;  // held around calls of MPI
  std::atomic<bool> left_ = false;
  double asked_ = 0;  // when a message was last found pending
  int neglected_ = 0;
};
static_assert(message_transport<mpi_transport>);

/// A handle on this process as a rank of an MPI communicator; cheap to copy. Bit-identical with every other backend.
class mpi_backend : public exchange_backend<mpi_transport> {
 public:
  static constexpr backend_traits traits = [] {
    backend_traits with_more = exchange_backend::traits;
    with_more.splits = true;
    with_more.driven = true;
    with_more.names_progress = true;
    return with_more;
  }();
  /// Another channel over the same communicator: each optimizer takes one.
  [[nodiscard]] mpi_backend duplicate() const { return mpi_backend(exchange_backend::duplicate()); }

  /// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank, over a communicator of its own;
  /// errors name its ranks. Every rank of this handle calls it; blocks at most `deadline` seconds for any of them.
  [[nodiscard]] mpi_backend split(int color, int key = 0, double deadline = 600) const {
    (void)agree_on_split(*this, color, key, deadline);
    (void)agree_on_split(*this, color, key, deadline);  // all have come through the first: who came too late hears it here
    mpi_transport const& whole = group().transport();
    mpi_options chosen = whole.options();
    chosen.deadline = deadline;
    const mpi_transport::part members(whole, color, key);
    return mpi_backend(members.get(), chosen);
  }

  static constexpr std::size_t usual_piece = std::size_t{128} << 10U;  // docs/performance.md

  /// Duplicates `group`; collective over it. MPI must outlive the last copy of the handle.
  explicit mpi_backend(MPI_Comm group = MPI_COMM_WORLD, mpi_options const& chosen = {})
      : exchange_backend(std::make_shared<exchange<mpi_transport>>(
            chosen.piece_bytes, usual_piece, std::make_shared<connections<mpi_transport>>(group, chosen))) {}

  /// Initializes MPI, calls function(mpi_backend), finalizes. An exception is printed and ends the whole job with exit code 1,
  /// half a second later, so that the other ranks can say what they saw.
  template <class Function>
  static int run(int& count, char**& words, Function&& function, mpi_options const& chosen = {}) {
    int level = 0;
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
    try {
      function(mpi_backend(MPI_COMM_WORLD, chosen));
    } catch (std::exception const& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::fflush(nullptr);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      MPI_Abort(MPI_COMM_WORLD, 1);
      return 1;
    }
    MPI_Finalize();
    return 0;
  }

  [[nodiscard]] char const* progress_policy() const noexcept {
    switch (group().transport().options().progress) {
      case mpi_progress::helper_thread: return "MPI: helper thread";
      case mpi_progress::poll: return "MPI: polled by the trainer";
      case mpi_progress::none: break;
    }
    return "MPI: none, the trainer waits";
  }

  [[nodiscard]] queue_driver driver() const noexcept {
    constexpr auto rest = [](void*) { std::this_thread::sleep_for(std::chrono::microseconds(20)); };
    constexpr auto nothing = [](void*) {};
    switch (group().transport().options().progress) {
      case mpi_progress::helper_thread: break;
      case mpi_progress::poll: return {rest, nothing, nullptr};
      case mpi_progress::none: return {rest, nullptr, nullptr};
    }
    return {};
  }

 private:
  explicit mpi_backend(exchange_backend other) : exchange_backend(std::move(other)) {}
};

}  // namespace ACCO_SIMD_NAMESPACE
