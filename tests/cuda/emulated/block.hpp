// SPDX-License-Identifier: Apache-2.0
// How the stand-in runs a kernel: block after block, every thread of a block on a stack of its own as soon as it waits
// for others, so that shuffles, votes, barriers and shared memory are executed as they are written. The threads of a
// block run in an order that changes from launch to launch. What a GPU would answer with a hang or with garbage ends
// the program here, with a sentence: lanes of one warp at different operations, a mask without its caller, a lane that
// has ended, a value of a lane that brings none.
#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ACCO_STAND_IN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ACCO_STAND_IN_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define ACCO_STAND_IN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ACCO_STAND_IN_TSAN 1
#endif
#endif
#if defined(ACCO_STAND_IN_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(ACCO_STAND_IN_TSAN)
#define ACCO_STAND_IN_UNWATCHED __attribute__((no_sanitize("thread")))
#else
#define ACCO_STAND_IN_UNWATCHED
#endif

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1) : x(a) {}
};
inline thread_local dim3 blockIdx, threadIdx, blockDim, gridDim;

namespace emulated {

[[noreturn]] inline void refuse(char const* what) {
  std::fprintf(stderr, "stand-in: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  std::abort();
}

#if defined(__x86_64__)
/// swapcontext without its two calls of the system: leaves a stack, whose end goes to `from`, for another that was left
/// so.
__attribute__((naked, noinline)) inline void switch_stack(void** /*from*/, void* /*to*/) {
  __asm__(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

/// A stack on which a thread of a block runs, or several one after the other while none of them waits. The thread
/// sanitizer is not told of it: to it a block is what it is here, work of the stream's thread (as fibers of its own,
/// thousands of them, they made every lock ten times as slow). What switches is not watched, so that its list of
/// callers stays balanced; in a kernel that list is of several threads of the block.
class fiber {
 public:
  fiber() = default;  // the one that runs already: of the stream's own thread
  explicit fiber(void (*main)()) : stack_(new std::byte[stack_bytes]) {
#if defined(__x86_64__)
    void** const top = reinterpret_cast<void**>(stack_.get() + stack_bytes) - 2;
    top[0] = reinterpret_cast<void*>(main);  // where it returns to, from a switch that saved six registers
    top[1] = nullptr;
    end_ = top - 6;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_bytes;
    makecontext(&context_, main, 0);
#endif
  }
  fiber(fiber const&) = delete;
  fiber& operator=(fiber const&) = delete;
  ACCO_STAND_IN_UNWATCHED void go_to(fiber& other) {
#if defined(ACCO_STAND_IN_ASAN)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, other.bottom(), other.size());
    other.left_ = this;
#endif
#if defined(__x86_64__)
    switch_stack(&end_, other.end_);
#else
    swapcontext(&context_, &other.context_);
#endif
#if defined(ACCO_STAND_IN_ASAN)
    come(fake);
#endif
  }
  /// On a stack for the first time.
  void arrive() {
#if defined(ACCO_STAND_IN_ASAN)
    come(nullptr);
#endif
  }

  unsigned thread = 0;  ///< that waits on it

 private:
#if defined(ACCO_STAND_IN_ASAN)
  [[nodiscard]] void const* bottom() const { return stack_ ? stack_.get() : known_bottom_; }
  [[nodiscard]] std::size_t size() const { return stack_ ? stack_bytes : known_size_; }
  void come(void* fake) {
    void const* from = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake, &from, &bytes);
    if (left_ != nullptr && !left_->stack_) {
      left_->known_bottom_ = from;
      left_->known_size_ = bytes;
    }
  }
  fiber* left_ = nullptr;
  void const* known_bottom_ = nullptr;
  std::size_t known_size_ = 0;
#endif
  static constexpr std::size_t stack_bytes = std::size_t{256} << 10U;
  std::unique_ptr<std::byte[]> stack_;
#if defined(__x86_64__)
  void* end_ = nullptr;
#else
  ucontext_t context_{};
#endif
};

/// What threads bring to an operation that they do together.
struct meeting {
  std::uint32_t mask;  // lanes of a warp
  char const* name;
  unsigned awaited, came, gone;  // awaited: 0 where nobody meets
  std::uint64_t brought[32];
  fiber* waiting[1024];
};

/// Runs the blocks of a launch, on the stream's own thread: nothing here is shared, and the thread sanitizer need not
/// look.
class block_runner {
 public:
  static constexpr unsigned most_threads = 1024, most_warps = most_threads / 32;

  /// The calling thread's, until it ends. Then another thread has it, with its stacks: they cost a sanitizer much.
  static block_runner& mine() {
    static thread_local tenancy const here;
    return *here.runner;
  }

  /// call(context) is a thread of the kernel.
  void run(unsigned blocks, unsigned threads, void (*call)(void const*), void const* context) {
    if (threads == 0 || threads > most_threads) refuse("a block has 1 to 1024 threads");
    call_ = call;
    context_ = context;
    blockDim = dim3(threads);
    gridDim = dim3(blocks);
    turn_ = turn_ * 2862933555777941757ULL + 3037000493ULL;
    for (unsigned b = 0; b < blocks; ++b) {
      blockIdx = dim3(b);
      run_block(threads);
    }
  }

  /// All lanes of `mask` in the caller's warp bring a number; read(all that were brought) gives the result.
  template <class Read>
  ACCO_STAND_IN_UNWATCHED auto together(std::uint32_t mask, std::uint64_t number, char const* name, Read read) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if ((mask >> lane & 1U) == 0) refuse("a mask without the lane that calls");
    if ((mask & ~alive_[warp]) != 0) refuse("a mask with a lane that has ended, or never was");
    meeting& here = at(warp, mask, name, static_cast<unsigned>(__builtin_popcount(mask)));
    here.brought[lane] = number;
    pass(here);
    const auto result = read(static_cast<std::uint64_t const*>(here.brought));
    leave(here);
    return result;
  }
  ACCO_STAND_IN_UNWATCHED void barrier() {
    if (over_ != 0) refuse("__syncthreads without a thread that has ended");
    meeting& here = at(most_warps, ~std::uint32_t{0}, "__syncthreads", blockDim.x);
    pass(here);
    leave(here);
  }

 private:
  /// Where these lanes meet: a warp's may be apart in groups.
  ACCO_STAND_IN_UNWATCHED meeting& at(unsigned warp, std::uint32_t mask, char const* name, unsigned awaited) {
    meeting* room = nullptr;
    for (meeting& each : meetings_[warp]) {
      if (each.awaited == 0) {
        room = room == nullptr ? &each : room;
      } else if (each.came != each.awaited) {  // otherwise it is over
        if (each.mask == mask && each.name == name) return each;
        if ((each.mask & mask) != 0) refuse("lanes of one warp are at different operations");
      }
    }
    if (room == nullptr) refuse("lanes of one warp are apart in more groups than the stand-in knows");
    room->mask = mask;
    room->name = name;
    room->awaited = awaited;
    room->came = room->gone = 0;
    return *room;
  }
  /// Waits until all have come.
  ACCO_STAND_IN_UNWATCHED void pass(meeting& here) {
    if (here.came + 1 == here.awaited) {
      for (unsigned k = 0; k < here.came; ++k) ready_[ready_end_++ % most_threads] = here.waiting[k];
      ++here.came;
      if (draw() % 2 == 0) return;  // else another one goes on first
      fiber& self = *running_;
      self.thread = threadIdx.x;
      ready_[ready_end_++ % most_threads] = &self;
      go_on(self);
      threadIdx = dim3(self.thread);
      return;
    }
    fiber& self = *running_;
    self.thread = threadIdx.x;
    here.waiting[here.came++] = &self;
    go_on(self);
    threadIdx = dim3(self.thread);
  }
  ACCO_STAND_IN_UNWATCHED static void leave(meeting& here) {
    if (++here.gone == here.awaited) here.awaited = 0;
  }

  /// Who waits or has no thread any more gives way: to one that has not begun, on a stack that is free, else to any
  /// that may
  /// go on; when all have ended, to the stream's own stack.
  ACCO_STAND_IN_UNWATCHED void go_on(fiber& self) {
    if (begun_ < blockDim.x) {
      running_ = &spare();
    } else if (ready_begin_ != ready_end_) {
      std::size_t next = ready_begin_ + draw() % (ready_end_ - ready_begin_);
      for (std::size_t k = ready_begin_; k != ready_end_ && favourite_ < most_warps; ++k) {
        if (ready_[k % most_threads]->thread / 32 == favourite_) next = k;
      }
      std::swap(ready_[ready_begin_ % most_threads], ready_[next % most_threads]);
      running_ = ready_[ready_begin_++ % most_threads];
    } else if (over_ == blockDim.x) {
      running_ = &*own_;
    } else {
      refuse("threads wait for each other for ever");
    }
    if (running_ != &self) self.go_to(*running_);
    running_ = &self;
  }
  ACCO_STAND_IN_UNWATCHED std::size_t draw() {
    drawn_ = drawn_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(drawn_ >> 33U);
  }
  fiber& spare() {
    if (spares_.empty()) {
      stacks_.push_back(std::make_unique<fiber>(&block_runner::main_of_fiber));
      return *stacks_.back();
    }
    fiber* const taken = spares_.back();
    spares_.pop_back();
    return *taken;
  }
  ACCO_STAND_IN_UNWATCHED static void main_of_fiber() {
    block_runner& all = mine();
    all.running_->arrive();
    for (;;) all.work();
  }
  /// Runs threads while there are any that have not begun, then gives way. Between two calls another thread may have
  /// got the runner: not inline, because the compiler might keep addresses of what is thread_local.
  ACCO_STAND_IN_UNWATCHED __attribute__((noinline)) void work() {
    fiber& self = *running_;
    while (begun_ < blockDim.x) {
      threadIdx = dim3(order(begun_++));
      call_(context_);
      alive_[threadIdx.x / 32] &= ~(1U << threadIdx.x % 32);
      ++over_;
    }
    spares_.push_back(&self);
    go_on(self);
  }
  /// Which thread begins as the k-th: all of them, each once.
  [[nodiscard]] unsigned order(unsigned k) const {
    const unsigned one = (static_cast<unsigned>(turn_ >> 40U) % blockDim.x + k) % blockDim.x;
    return (turn_ >> 33U & 1U) != 0 ? blockDim.x - 1 - one : one;
  }
  ACCO_STAND_IN_UNWATCHED void run_block(unsigned threads) {
    for (unsigned w = 0; w < most_warps; ++w) {
      const unsigned left = threads > 32 * w ? threads - 32 * w : 0;
      alive_[w] = left >= 32 ? ~0U : (1U << left) - 1;
    }
    begun_ = over_ = 0;
    const auto warps = (threads + 31) / 32;
    favourite_ = static_cast<unsigned>(draw() % (2 * warps));
    if (favourite_ >= warps) favourite_ = most_warps;
    ready_begin_ = ready_end_ = 0;
    running_ = &spare();
    own_->go_to(*running_);
    for (auto const& warp : meetings_) {
      for (meeting const& each : warp) {
        if (each.awaited != 0) refuse("a block has ended in the midst of an operation of several threads");
      }
    }
  }

  /// Of a runner, by a thread.
  struct tenancy {
    struct houses {
      std::mutex mutex;
      std::vector<std::unique_ptr<block_runner>> empty;
    };
    tenancy() {
      const std::lock_guard lock(all().mutex);
      if (all().empty.empty()) {
        runner = std::make_unique<block_runner>();
      } else {
        runner = std::move(all().empty.back());
        all().empty.pop_back();
      }
      runner->own_.emplace();
    }
    tenancy(tenancy const&) = delete;
    tenancy& operator=(tenancy const&) = delete;
    ~tenancy() {
      const std::lock_guard lock(all().mutex);
      all().empty.push_back(std::move(runner));
    }
    static houses& all() {
      static houses& one = *new houses;  // threads that end after main use it
      return one;
    }
    std::unique_ptr<block_runner> runner;
  };

  void (*call_)(void const*) = nullptr;
  void const* context_ = nullptr;
  std::uint64_t turn_ = 1, drawn_ = 1;
  std::optional<fiber> own_;  // the thread's
  fiber* running_ = nullptr;
  std::vector<std::unique_ptr<fiber>> stacks_;
  std::vector<fiber*> spares_;
  fiber* ready_[most_threads] = {};
  std::size_t ready_begin_ = 0, ready_end_ = 0;
  meeting meetings_[most_warps + 1][4] = {};  // of each warp, and of the whole block
  std::uint32_t alive_[most_warps] = {};      // lanes that have not ended
  unsigned favourite_ = most_warps;           // the warp that runs ahead where it may, in half of the blocks
  unsigned begun_ = 0, over_ = 0;
};

template <class T>
std::uint64_t as_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T shuffle(std::uint32_t mask, T value, unsigned source, char const* name) {
  if ((mask >> source & 1U) == 0) refuse("a shuffle from a lane that brings nothing");
  return from_bits<T>(
      block_runner::mine().together(mask, as_bits(value), name, [source](auto const* all) { return all[source]; }));
}
}  // namespace emulated

template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return emulated::shuffle(mask, value, static_cast<unsigned>(source) % 32, "__shfl_sync");
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emulated::shuffle(mask, value, (threadIdx.x % 32) ^ static_cast<unsigned>(bits), "__shfl_xor_sync");
}
/// A lane above the last gets its own value back, as on a device.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = threadIdx.x % 32;
  return emulated::shuffle(mask, value, lane + by < 32 ? lane + by : lane, "__shfl_down_sync");
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return emulated::block_runner::mine().together(mask, predicate != 0 ? 1 : 0, "__ballot_sync", [mask](auto const* all) {
    unsigned votes = 0;
    for (unsigned k = 0; k < 32; ++k) votes |= (mask >> k & 1U) != 0 && all[k] != 0 ? 1U << k : 0U;
    return votes;
  });
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline void __syncwarp(unsigned mask = ~0U) { (void)emulated::shuffle(mask, 0, threadIdx.x % 32, "__syncwarp"); }
inline void __syncthreads() { emulated::block_runner::mine().barrier(); }
#define __shared__ static thread_local  // blocks of a launch run one after the other on their stream's thread
