// SPDX-License-Identifier: Apache-2.0
// Hosts of one machine: network namespaces, which need root and the program ip. Each host is a process with a network,
// names (/etc/hosts) and settings of its own.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hosts {

inline bool run(std::string const& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }
inline bool write_file(std::filesystem::path const& path, std::string const& words) {
  std::ofstream out(path);
  out << words << std::flush;
  return static_cast<bool>(out);
}

/// A process with a network of its own; it waits for start(), does its work and says some words.
class host {
 public:
  host(std::string const& hosts_file, std::function<std::string()> const& work) {
    int to[2], from[2];
    REQUIRE(pipe(to) == 0);
    REQUIRE(pipe(from) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(to[1]);
      close(from[0]);
      const std::filesystem::path names = std::filesystem::temp_directory_path() / ("acco_hosts_" + std::to_string(getpid()));
      const bool good = unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && write_file(names, hosts_file) &&
                        mount(names.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0 && run("ip link set lo up");
      char ready = good ? 'y' : 'n';
      (void)!write(from[1], &ready, 1);
      if (read(to[0], &ready, 1) == 1) {
        const std::string words = work();
        (void)!write(from[1], words.data(), words.size());
      }
      std::filesystem::remove(names);
      _exit(0);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
    char ready = 'n';
    (void)!read(from_, &ready, 1);
    good_ = ready == 'y';
  }
  host(host const&) = delete;
  host& operator=(host const&) = delete;
  ~host() {
    close(to_);
    close(from_);
    int status = 0;
    waitpid(pid_, &status, 0);
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::string id() const { return std::to_string(pid_); }
  void start() const { (void)!write(to_, "g", 1); }
  std::string words() {
    std::string result;
    char some[512];
    for (ssize_t n = 0; (n = read(from_, some, sizeof some)) > 0;) result.append(some, static_cast<std::size_t>(n));
    return result;
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  bool good_ = false;
};
inline bool made(std::vector<host const*> const& all) {
  for (host const* each : all) {
    if (each->good()) continue;
    std::puts("skipped: network namespaces need root and the program ip");
    return false;
  }
  return true;
}
/// A link between two of them: 10.77.0.1 and 10.77.0.2.
inline void connect(host const& a, host const& b) {
  const auto inside = [](host const& in, std::string const& command) {
    REQUIRE(run("nsenter -t " + in.id() + " -n ip " + command));
  };
  REQUIRE(run("ip link add accoa netns " + a.id() + " type veth peer name accob netns " + b.id()));
  inside(a, "addr add 10.77.0.1/24 dev accoa");
  inside(a, "link set accoa up");
  inside(b, "addr add 10.77.0.2/24 dev accob");
  inside(b, "link set accob up");
}

}  // namespace hosts
