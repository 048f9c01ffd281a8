// SPDX-License-Identifier: Apache-2.0
// For bench/wan/run.py, which starts it in network namespaces:
//
//   bench_wan link CARD_A CARD_B ONE_WAY_MS MBIT [LOSS_PERCENT [JITTER_MS [QUEUE_KB]]]   a long link between two TUN devices
//   bench_wan streams COUNT SECONDS          plain TCP, both ways: Mbit/s that this rank sent in the second half
//   bench_wan rounds PARAMETERS ROUNDS       rounds of `synchronous` over Gloo: seconds of the first, and the median of others
//
// The last two are ranks 0 and 1: RANK, MASTER_ADDR and MASTER_PORT say where they meet.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
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
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>

namespace {

using steady = std::chrono::steady_clock;

steady::duration seconds(double count) {
  return std::chrono::duration_cast<steady::duration>(std::chrono::duration<double>(count));
}
std::runtime_error failed(char const* what) { return std::runtime_error(std::string(what) + ": " + std::strerror(errno)); }

// --- a link

struct direction {
  int in = -1, out = -1;                                        // TUN devices: a read or a write is a packet
  double delay = 0, rate = 0, loss = 0, jitter = 0, queue = 0;  // seconds, bytes a second, a share, seconds, bytes

  /// Packets leave in the order in which they came: each when the link has carried those before it, and the delay
  /// later.
  void carry() {
    std::thread([this] { deliver(); }).detach();
    std::mt19937 random(static_cast<unsigned>(in));
    std::uniform_real_distribution<double> uniform;
    std::vector<char> buffer(70000);
    steady::time_point idle_at = steady::now(), last = idle_at;
    for (;;) {
      const auto bytes = read(in, buffer.data(), buffer.size());
      if (bytes <= 0) continue;
      idle_at = std::max(idle_at, steady::now());
      const double waiting = std::chrono::duration<double>(idle_at - steady::now()).count();
      if (waiting * rate > queue || uniform(random) < loss) continue;  // dropped
      idle_at += seconds(static_cast<double>(bytes) / rate);
      last = std::max(last, idle_at + seconds(delay + jitter * uniform(random)));
      const std::lock_guard lock(mutex_);
      under_way_.push_back({last, {buffer.begin(), buffer.begin() + bytes}});
      some_.notify_one();
    }
  }

 private:
  struct packet {
    steady::time_point due;
    std::vector<char> bytes;
  };
  void deliver() {
    for (;;) {
      std::unique_lock lock(mutex_);
      some_.wait(lock, [&] { return !under_way_.empty(); });
      const packet next = std::move(under_way_.front());
      under_way_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(next.due);
      if (write(out, next.bytes.data(), next.bytes.size()) < 0) continue;  // the card is down
    }
  }
  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<packet> under_way_;
};

int open_card(char const* name) {
  const int card = open("/dev/net/tun", O_RDWR);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (card < 0 || ioctl(card, TUNSETIFF, &request) < 0) throw failed("/dev/net/tun");
  return card;
}
int link(std::vector<std::string> const& words) {
  const auto number = [&](std::size_t k, double usual) { return words.size() > k ? std::stod(words[k]) : usual; };
  direction there, back;
  there.in = back.out = open_card(words.at(0).c_str());
  there.out = back.in = open_card(words.at(1).c_str());
  for (direction* each : {&there, &back}) {
    each->delay = number(2, 0) * 1e-3;
    each->rate = number(3, 1000) * 1e6 / 8;
    each->loss = number(4, 0) / 100;
    each->jitter = number(5, 0) * 1e-3;
    each->queue = number(6, 20000) * 1e3;
  }
  std::puts("ready");
  std::fflush(stdout);
  std::thread([&] { there.carry(); }).detach();
  back.carry();
  return 0;
}

// --- plain TCP

std::string setting(char const* name) {
  char const* const found = std::getenv(name);
  if (found == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return found;
}
/// As many connections to the other rank.
std::vector<int> connect_all(std::size_t count) {
  const bool first = setting("RANK") == "0";
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(setting("MASTER_PORT"))));
  if (inet_pton(AF_INET, setting("MASTER_ADDR").c_str(), &at.sin_addr) != 1) throw std::runtime_error("MASTER_ADDR");
  const auto* const address = reinterpret_cast<sockaddr const*>(&at);
  std::vector<int> result;
  const int listening = first ? socket(AF_INET, SOCK_STREAM, 0) : -1;
  if (first) {
    const int yes = 1;
    (void)setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, address, sizeof at) != 0 || listen(listening, 64) != 0) throw failed("listen");
  }
  for (const auto until = steady::now() + seconds(30); result.size() < count;) {
    const int one = first ? accept(listening, nullptr, nullptr) : socket(AF_INET, SOCK_STREAM, 0);
    if (first || connect(one, address, sizeof at) == 0) {
      result.push_back(one);
    } else {
      close(one);
      if (steady::now() > until) throw failed("connect");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  if (first) close(listening);
  return result;
}
int streams(std::vector<std::string> const& words) {
  const std::vector<int> sockets = connect_all(std::stoul(words.at(0)));
  const double whole = std::stod(words.at(1));
  const auto begin = steady::now(), half = begin + seconds(whole / 2), end = begin + seconds(whole);
  std::atomic<std::uint64_t> sent = 0;
  std::vector<std::thread> all;
  for (const int each : sockets) {
    all.emplace_back([=] {
      std::vector<char> buffer(1U << 20U);
      while (recv(each, buffer.data(), buffer.size(), 0) > 0) {
      }
    });
    all.emplace_back([=, &sent] {
      const std::vector<char> buffer(1U << 18U);
      while (steady::now() < end) {
        const auto bytes = send(each, buffer.data(), buffer.size(), MSG_NOSIGNAL);
        if (bytes < 0) break;
        if (steady::now() > half) sent += static_cast<std::uint64_t>(bytes);
      }
      shutdown(each, SHUT_WR);
    });
  }
  for (std::thread& each : all) each.join();
  for (const int each : sockets) close(each);
  std::printf("%.1f\n", static_cast<double>(sent) * 8 / (whole / 2) / 1e6);
  return 0;
}

// --- rounds

/// 1 of a library before it had several.
template <class World>
std::size_t connections(World const& world) {
  if constexpr (requires { world.connections_a_rank(); }) return world.connections_a_rank();
  return 1;
}
int rounds(std::vector<std::string> const& words) {
  const auto parameters = static_cast<std::size_t>(std::stod(words.at(0)));
  const auto count = std::stoul(words.at(1));
  const auto world = acco::gloo_backend::from_environment({.deadline = 120});
  acco::optimizer training{acco::synchronous{}, acco::sgd{.learning_rate = 0.1}, acco::host_storage<float>{}, world,
                           parameters,          acco::options{.deadline = 300}};
  training.initialize(std::vector<float>(parameters, 0.0F));
  std::vector<double> took;
  for (std::size_t k = 0; k < count; ++k) {
    took.push_back(training
                       .step([](auto, auto gradients) {
                         gradients[0] += 1;
                         return 1;
                       })
                       .exposed_seconds);
  }
  const double bytes = static_cast<double>(training.memory().messages);
  training.finish();
  const double first = took.front();
  std::sort(took.begin() + 1, took.end());
  std::printf("%.4f %.4f %zu %.0f\n", first, took[1 + (took.size() - 1) / 2], connections(world), bytes);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string kind = count > 1 ? words[1] : "";
    const std::vector<std::string> others(words + std::min(count, 2), words + count);
    if (kind == "link") return link(others);
    if (kind == "streams") return streams(others);
    if (kind == "rounds") return rounds(others);
    std::fputs("bench_wan link|streams|rounds ...: the head of wan.cpp has their arguments\n", stderr);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_wan: %s\n", e.what());
  }
  return 1;
}
