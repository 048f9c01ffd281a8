// SPDX-License-Identifier: Apache-2.0
// Long links between ranks that are threads of this process: each lives in a network namespace of its own, whose only
// card is a TUN device, and threads here carry the packets: late, twice, in another order, or not at all. Needs root
// and /dev/net/tun.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace wan {

/// What becomes of packets from one rank to another.
struct conditions {
  double delay = 0;        // seconds
  double jitter = 0;       // seconds at most, beside the delay
  double loss = 0;         // a share of them
  double twice = 0;        // likewise
  bool overtake = false;   // whether a packet comes before one that has waited longer
  bool swallowed = false;  // all of them
};

class network {
 public:
  static constexpr char const* card = "wan0";

  /// Why there is none here; empty: there is.
  static std::string missing() {
    if (geteuid() != 0) return "long links need root";
    if (access("/dev/net/tun", R_OK | W_OK) != 0) return "long links need /dev/net/tun";
    try {
      const network tried(1, {});
    } catch (std::exception const& e) {
      return std::string("long links are not allowed here: ") + e.what();
    }
    return {};
  }

  network(int ranks, conditions const& all, unsigned seed = 1)
      : hosts_(at(ranks)), all_(hosts_.size() * hosts_.size(), all), random_(seed) {
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      std::string failure;
      std::thread([&] {  // who leaves the namespace of all others
        try {
          settle(hosts_[rank], rank);
        } catch (std::exception const& e) {
          failure = e.what();
        }
      })
          .join();
      if (failure.empty()) continue;
      close_all();
      throw std::runtime_error(failure);
    }
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) carriers_.emplace_back([this, rank] { take(rank); });
    carriers_.emplace_back([this] { deliver(); });
  }
  network(network const&) = delete;
  network& operator=(network const&) = delete;
  ~network() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    some_.notify_all();
    for (std::thread& each : carriers_) each.join();
    close_all();
  }

  /// From now on the calling thread, and those that it starts, are on this rank's host.
  void enter(int rank) const {
    if (setns(hosts_.at(at(rank)).space, CLONE_NEWNET) != 0) throw failed("setns");
  }
  /// Of a rank's namespace, for other processes while this object lives.
  std::string path(int rank) const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(hosts_.at(at(rank)).space);
  }
  /// Packets until now.
  unsigned long long travelled() const {
    const std::lock_guard lock(mutex_);
    return number_;
  }
  void set(int from, int to, conditions const& now) {
    const std::lock_guard lock(mutex_);
    between(at(from), at(to)) = now;
  }

 private:
  using steady = std::chrono::steady_clock;
  struct host {
    int space = -1, card = -1;
  };
  struct packet {
    steady::time_point due;
    unsigned long long number;
    std::size_t to;
    std::vector<char> bytes;
    bool operator>(packet const& other) const { return due != other.due ? due > other.due : number > other.number; }
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static std::runtime_error failed(char const* what) {
    return std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  }
  conditions& between(std::size_t from, std::size_t to) { return all_[from * hosts_.size() + to]; }
  void close_all() {
    for (host const& each : hosts_) {
      if (each.card >= 0) close(each.card);
      if (each.space >= 0) close(each.space);
    }
  }

  static ifreq request(char const* name) {
    ifreq result{};
    std::strncpy(result.ifr_name, name, IFNAMSIZ - 1);
    return result;
  }
  static void settle(host& its, std::size_t rank) {
    if (unshare(CLONE_NEWNET) != 0) throw failed("a network namespace");
    its.space = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    its.card = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ifreq tun = request(card);
    tun.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (its.space < 0 || its.card < 0 || ioctl(its.card, TUNSETIFF, &tun) != 0) throw failed("a TUN device");
    const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto tell = [&](unsigned long what, ifreq one) {
      if (ioctl(any, what, &one) != 0) throw failed("an address");
    };
    const auto address = [](std::string const& digits) {
      ifreq result = request(card);
      sockaddr_in in{};
      in.sin_family = AF_INET;
      inet_pton(AF_INET, digits.c_str(), &in.sin_addr);
      std::memcpy(&result.ifr_addr, &in, sizeof in);
      return result;
    };
    const auto up = [](char const* name) {
      ifreq result = request(name);
      result.ifr_flags = IFF_UP | IFF_RUNNING;
      return result;
    };
    tell(SIOCSIFADDR, address("10.79.0." + std::to_string(rank + 1)));
    tell(SIOCSIFNETMASK, address("255.255.255.0"));
    tell(SIOCSIFFLAGS, up(card));
    tell(SIOCSIFFLAGS, up("lo"));
    close(any);
  }

  /// What a host sends.
  void take(std::size_t from) {
    std::vector<char> buffer(70000);
    std::vector<steady::time_point> last(hosts_.size());
    std::uniform_real_distribution<double> share;
    while (!ending_) {
      pollfd one{hosts_[from].card, POLLIN, 0};
      if (poll(&one, 1, 50) <= 0) continue;
      const auto bytes = read(one.fd, buffer.data(), buffer.size());
      constexpr int destination = 19;  // the last byte of its address
      if (bytes < 20 || (buffer[0] & 0xf0) != 0x40) continue;
      const auto to = static_cast<std::size_t>(static_cast<unsigned char>(buffer[destination])) - 1;
      if (to >= hosts_.size()) continue;
      const std::lock_guard lock(mutex_);
      conditions const& now = between(from, to);
      if (now.swallowed || share(random_) < now.loss) continue;
      for (int copies = share(random_) < now.twice ? 2 : 1; copies > 0; --copies) {
        const std::chrono::duration<double> late(now.delay + now.jitter * share(random_));
        auto due = steady::now() + std::chrono::duration_cast<steady::duration>(late);
        if (!now.overtake) due = last[to] = std::max(due, last[to]);
        under_way_.push({due, number_++, to, {buffer.begin(), buffer.begin() + bytes}});
      }
      some_.notify_one();
    }
  }
  void deliver() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      if (under_way_.empty()) {
        some_.wait(lock);
      } else if (under_way_.top().due > steady::now()) {
        some_.wait_until(lock, under_way_.top().due);
      } else {
        packet const& next = under_way_.top();
        (void)!write(hosts_[next.to].card, next.bytes.data(), next.bytes.size());
        under_way_.pop();
      }
    }
  }

  std::vector<host> hosts_;
  std::vector<conditions> all_;  // by sender and receiver
  std::mt19937 random_;
  mutable std::mutex mutex_;
  std::condition_variable some_;
  std::priority_queue<packet, std::vector<packet>, std::greater<>> under_way_;
  unsigned long long number_ = 0;
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> carriers_;
};

}  // namespace wan
