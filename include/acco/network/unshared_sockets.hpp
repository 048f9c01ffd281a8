// SPDX-License-Identifier: Apache-2.0
// Sockets of which child processes keep no copies: a connection ends with its process, however long its children live.
#pragma once

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "acco/network/socket.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::net {

/// While it lives, a child that is forked finds unconnected sockets in place of these, and a program that is started
/// finds none. The sockets stay their owner's: one that he has closed is left alone, whatever has its number now. Any
/// thread.
class unshared_sockets {
 public:
  explicit unshared_sockets(std::vector<int> const& descriptors) {
    for (const int each : descriptors) {
      struct stat found{};
      if (fstat(each, &found) != 0 || !S_ISSOCK(found.st_mode)) continue;
      (void)fcntl(each, F_SETFD, FD_CLOEXEC);
      sockets_.emplace_back(each, found.st_ino);
    }
    all& here = of_this_process();
    const std::lock_guard lock(here.mutex);
    here.living.push_back(this);
  }
  unshared_sockets(unshared_sockets const&) = delete;
  unshared_sockets& operator=(unshared_sockets const&) = delete;
  ~unshared_sockets() {
    all& here = of_this_process();
    const std::lock_guard lock(here.mutex);
    std::erase(here.living, this);
  }
  /// Adds a handle of each that its owner has not closed.
  void copy_open(std::vector<socket_handle>& to) const {
    for (auto const& [descriptor, inode] : sockets_) {
      if (!is(descriptor, inode)) continue;  // closing a copy of a file would end its owner's locks
      socket_handle copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
      if (is(copy.get(), inode)) to.push_back(std::move(copy));
    }
  }

 private:
  static bool is(int descriptor, ino_t inode) noexcept {
    struct stat found{};
    return fstat(descriptor, &found) == 0 && S_ISSOCK(found.st_mode) && found.st_ino == inode;
  }
  struct all {
    std::mutex mutex;
    std::vector<unshared_sockets const*> living;
  };
  static all& of_this_process() {
    static all& here = *new all;  // a thread may fork while this process ends
    [[maybe_unused]] static const int registered =
        pthread_atfork([] { of_this_process().mutex.lock(); }, [] { of_this_process().mutex.unlock(); }, [] { in_child(); });
    return here;
  }
  /// Where only signal-safe functions may be called. The numbers stay taken: what owns them closes them once more.
  static void in_child() noexcept {
    all& here = of_this_process();
    const int unconnected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (unshared_sockets const* each : here.living) {
      for (auto const& [descriptor, inode] : each->sockets_) {
        if (!is(descriptor, inode)) continue;
        if (unconnected < 0 || dup3(unconnected, descriptor, O_CLOEXEC) < 0) (void)close(descriptor);
      }
    }
    if (unconnected >= 0) (void)close(unconnected);
    here.mutex.unlock();
  }

  std::vector<std::pair<int, ino_t>> sockets_;
};

}  // namespace ACCO_SIMD_NAMESPACE::net
