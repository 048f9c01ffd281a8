// SPDX-License-Identifier: Apache-2.0
// What a checkpoint costs: the trainer's thread while it asks for one, the steps while it is written, and a restore
// beside reading the same files and doing nothing; and what it costs to look for flipped bits, and to digest.
// bench_checkpoint [FOLDER] [PARAMETERS] [RANKS] [restore: only that]; bench/peers/torch_checkpoint.py is PyTorch's.
//
// Reading and doing nothing: as many threads as ranks read each its part of each file, 1 MiB at a time, to where it
// stays. Where it stays matters more than the reading: the system hands out memory page by page, at the first touch,
// and that takes longer than copying the bytes. So a restore into a training that has its memory is compared with
// reading into memory that is there, and with reading into fresh memory, which whoever starts needs anyway. A restore
// in the place of initialize also touches all the other memory of the optimizer, for the first time: so does
// initialize, whose time is taken off.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

namespace {
using clock_type = std::chrono::steady_clock;
double since(clock_type::time_point begin) { return std::chrono::duration<double>(clock_type::now() - begin).count(); }
double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

constexpr int every = 10, steps = 40, passes = 60;

auto make(acco::threads_backend const& world, std::size_t count, acco::options chosen = {.compare_every = 0}) {
  return acco::optimizer{
      acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, count, std::move(chosen)};
}
/// A micro-batch: passes over the parameters and gradients.
int compute(std::span<float const> p, std::span<float> g) {
  for (int pass = 0; pass < passes; ++pass)
    for (std::size_t i = 0; i < p.size(); ++i) g[i] += 1e-3F * p[i] + 1e-6F * static_cast<float>(i & 15U);
  return 1;
}

struct measured {
  double step = 0, asked = 0;  // seconds of a step, and of a call of save
  std::size_t saves = 0, staging = 0, bytes = 0;
  double written = 0;  // seconds from the wish to a durable checkpoint
};
/// Rank 0's figures of a run, which saves every ten steps where `saves`.
measured train(std::string const& run, std::size_t count, int ranks, bool saves) {
  measured found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::any_optimizer<float> t = make(world, count);
    t.initialize(std::vector<float>(count, 1.0F));
    std::vector<double> asked, written;
    int position = 0;
    std::uint64_t newest = 0;  // step of the save that ended last
    const auto step = [&] { return t.step([](auto p, auto g) { return compute(p, g); }); };
    for (int warm = 0; warm < 3; ++warm) (void)step();
    if (saves) {  // memory is taken, and the thread started, once
      t.save(run, [&] { return position; });
      for (int k = 0; k < 4; ++k) (void)step();
      t.finish();
      newest = t.saved() != nullptr ? t.saved()->step : 0;
    }
    const auto begin = clock_type::now();
    for (; position < steps; ++position) {
      if (saves && position % every == 0) {
        const auto from = clock_type::now();
        t.save(run, [&] { return position; });
        asked.push_back(since(from));
      }
      (void)step();
      if (saves && t.saved() != nullptr && t.saved()->complete() && t.saved()->step != newest) {
        newest = t.saved()->step;
        written.push_back(t.saved()->seconds);
      }
    }
    const double took = since(begin);
    t.finish();
    if (world.rank() != 0) return;
    found.step = took / steps;
    if (!saves) return;
    found.asked = median(asked);
    found.saves = written.size();
    found.written = written.empty() ? 0 : median(written);
    found.staging = t.memory().staging;
    found.bytes = t.saved() != nullptr ? t.saved()->bytes : 0;
  });
  return found;
}

/// Seconds of a step of rank 0, with such options.
double step_seconds(std::size_t count, int ranks, acco::options const& chosen) {
  double found = 0;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::any_optimizer<float> t = make(world, count, chosen);
    t.initialize(std::vector<float>(count, 1.0F));
    const auto step = [&] { (void)t.step([](auto p, auto g) { return compute(p, g); }); };
    for (int warm = 0; warm < 3; ++warm) step();
    const auto begin = clock_type::now();
    for (int k = 0; k < steps; ++k) step();
    if (world.rank() == 0) found = since(begin) / steps;
    t.finish();
  });
  return found;
}

/// Bytes that this process has read by system calls.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  file >> key >> value;  // rchar
  return value;
}
/// The files of a folder, which are on disk, leave the memory of the system.
void forget(std::string const& folder) {
  for (auto const& each : std::filesystem::directory_iterator(folder)) {
    const int file = ::open(each.path().c_str(), O_RDONLY | O_CLOEXEC);
    (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}
/// Memory for all files of a folder.
using places = std::vector<std::unique_ptr<std::byte[]>>;
/// Seconds in which all files of a folder are read by so many threads; where there are no places yet, into fresh
/// memory.
double read_all(std::string const& folder, int threads, places& to, std::uint64_t& bytes) {
  const auto begin = clock_type::now();
  std::vector<acco::checkpoints::file_to_read> files;
  for (auto const& each : std::filesystem::directory_iterator(folder)) files.emplace_back(each.path().string());
  const bool fresh = to.empty();
  bytes = 0;
  for (auto const& file : files) {
    bytes += file.size();
    if (fresh) to.emplace_back(new std::byte[file.size() + 1]);
  }
  const auto work = [&](std::uint64_t thread) {
    const auto of = static_cast<std::uint64_t>(threads);
    for (std::size_t k = 0; k < files.size(); ++k) {
      const std::uint64_t end = files[k].size() * (thread + 1) / of;
      for (std::uint64_t at = files[k].size() * thread / of, count = 0; at < end; at += count) {
        count = std::min<std::uint64_t>(std::uint64_t{1} << 20U, end - at);
        files[k].read(at, {to[k].get() + at, count});
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, static_cast<std::uint64_t>(thread));
    work(0);
  }
  return since(begin);
}

/// A restore beside reading.
void compare_restores(std::string const& newest, std::size_t count, int ranks) {
  // fixed: all that is freed goes back to the system, and what is allocated is fresh
  (void)::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  for (const bool from_disk : {true, false}) {
    std::vector<double> seconds[3], against_there, against_fresh, started;
    std::uint64_t bytes = 0, restored = 0;
    for (int repeat = 0; repeat < 9; ++repeat) {
      const auto files = [&] {
        if (from_disk) forget(newest);
      };
      places to;
      files();
      const double fresh = read_all(newest, ranks, to, bytes);
      files();
      const double there = read_all(newest, ranks, to, bytes);
      to.clear();
      double took[3] = {};  // restore into memory that is there, restore in the place of initialize, initialize
      for (int kind = 0; kind < 3; ++kind) {
        files();
        const std::vector<float> values(count, 1.0F);
        acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
          acco::any_optimizer<float> t = make(world, count);
          if (kind == 0) {
            t.initialize(values);
            t.finish();
          }
          const std::uint64_t before = bytes_read();
          const auto begin = clock_type::now();
          if (kind == 2) {
            t.initialize(values);
          } else {
            (void)t.restore(newest);
          }
          if (world.rank() == 0) took[kind] = since(begin);
          if (world.rank() == 0 && kind == 0) restored = bytes_read() - before;
        });
        seconds[kind].push_back(took[kind]);
      }
      against_there.push_back(took[0] / there);
      against_fresh.push_back(took[0] / fresh);
      started.push_back((took[1] - took[2]) / fresh);
    }
    std::printf(
        "restore, files %s           %.1f ms, %.2f times reading them into memory that is there, %.2f into fresh memory\n",
        from_disk ? "on disk  " : "in memory", median(seconds[0]) * 1e3, median(against_there), median(against_fresh));
    std::printf(
        "  in the place of initialize         %.1f ms, initialize %.1f ms; the difference %.2f times reading into fresh memory\n",
        median(seconds[1]) * 1e3, median(seconds[2]) * 1e3, median(started));
    std::printf("  reads                              %.4f of the files' bytes\n",
                static_cast<double>(restored) / static_cast<double>(bytes));
  }
}
}  // namespace

int main(int count_of_words, char** words) {
  const std::string run = count_of_words > 1 ? words[1] : "bench-checkpoint";
  const std::size_t count = count_of_words > 2 ? std::strtoull(words[2], nullptr, 10) : 4'000'000;
  const int ranks = count_of_words > 3 ? std::atoi(words[3]) : 1;
  std::filesystem::remove_all(run);
  if (count_of_words > 4 && words[4] == std::string("restore")) {
    (void)train(run, count, ranks, true);
    compare_restores(acco::latest_checkpoint(run).value(), count, ranks);
    std::filesystem::remove_all(run);
    return 0;
  }
  std::vector<double> ratios, plain, asked, written;
  measured last;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const measured without = train(run, count, ranks, false), with = train(run, count, ranks, true);
    plain.push_back(without.step);
    ratios.push_back(with.step / without.step);
    asked.push_back(with.asked / with.step);
    written.push_back(with.written);
    last = with;
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("parameters %zu, ranks %d, a step of %.1f ms, a checkpoint of %.1f MB every %d steps\n", count, ranks,
              median(plain) * 1e3, static_cast<double>(last.bytes) * 1e-6, every);
  std::printf("save(), the trainer's thread         %.4f %% of a step\n", median(asked) * 100);
  std::printf("steps, with saves / without          %.4f, median of 5 pairs (%.4f to %.4f)\n", ratios[2], ratios[0], ratios[4]);
  std::printf("saves that were durable by the end   %zu of %d; %.0f ms each: %.0f MB/s\n", last.saves, steps / every,
              median(written) * 1e3, static_cast<double>(last.bytes) * 1e-6 / std::max(median(written), 1e-9));
  std::printf("staging in memory()                  %.2f bytes a parameter of this rank (%zu)\n",
              static_cast<double>(last.staging) * ranks / static_cast<double>(count), last.staging);

  struct guard {
    char const* what;
    acco::options chosen;
  };
  for (guard const& each : {guard{"compare_every 100, of more ranks", {.compare_every = 100}},
                            guard{"compare_every 1, of more ranks  ", {.compare_every = 1}},
                            guard{"digest_every 1                  ", {.compare_every = 0, .digest_every = 1}}}) {
    std::vector<double> over;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const double without = step_seconds(count, ranks, {.compare_every = 0});
      over.push_back(step_seconds(count, ranks, each.chosen) / without);
    }
    std::sort(over.begin(), over.end());
    std::printf("steps, %s / without %.4f, median of 5 pairs (%.4f to %.4f)\n", each.what, over[2], over[0], over[4]);
  }

  compare_restores(acco::latest_checkpoint(run).value(), count, ranks);
  std::filesystem::remove_all(run);
}
