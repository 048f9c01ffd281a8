// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "acco/error.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Which rank this process is, of how many.
struct rank_of {
  int rank = 0;
  int size = 1;
};

namespace rendezvous::detail {
/// For a run whose ranks find each other by files that are called by its name. Throws `usage_error`.
inline void require_file_name(std::string const& run, error_place where) {
  if (run.find_first_of(std::string_view("/\0", 2)) == std::string::npos) return;
  throw usage_error(where, text("the run's name '", run.c_str(), "' cannot begin a file's: it has a '/' or a NUL in it"),
                    text("Name the run without them: its files stay in the directory"));
}
}  // namespace rendezvous::detail

/// The environment that launchers set, under the names of torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and a
/// name for the run that is the same on all its ranks.
struct launch_environment : rank_of {
  std::string address;
  std::uint16_t port = 0;
  /// The first of these that is set: ACCO_RUN_ID, TORCHELASTIC_RUN_ID (unless it is "none", torchrun's default), the
  /// job's number from SLURM (SLURM_HET_JOB_ID or SLURM_JOB_ID, with SLURM_RESTART_COUNT where the job was requeued),
  /// PBS (PBS_JOBID), LSF (LSB_JOBID with LSB_JOBINDEX) or Flux (FLUX_JOB_ID). Empty if there is none.
  std::string run{};

  /// Reads it. Throws `usage_error` that names what is missing or no number.
  [[nodiscard]] static launch_environment read() {
    launch_environment found;
    found.size = number("WORLD_SIZE", 1, 1 << 20);
    found.rank = number("RANK", 0, found.size - 1);
    found.address = word("MASTER_ADDR");
    found.port = static_cast<std::uint16_t>(number("MASTER_PORT", 1, 65535));
    found.run = run_name();
    return found;
  }

 private:
  static std::string optional(char const* name, std::string const& means_nothing = {}) {
    char const* const value = std::getenv(name);
    return value == nullptr || value == means_nothing ? "" : value;
  }
  static std::string run_name() {
    const std::string restarts = optional("SLURM_RESTART_COUNT", "0"), index = optional("LSB_JOBINDEX", "0");
    std::string result = optional("ACCO_RUN_ID");
    if (result.empty()) result = optional("TORCHELASTIC_RUN_ID", "none");
    // steps of a heterogeneous job differ in the second one
    for (char const* name : {"SLURM_HET_JOB_ID", "SLURM_JOB_ID"}) {
      if (std::string job = optional(name); result.empty() && !job.empty())
        result = restarts.empty() ? job : job.append(".").append(restarts);
    }
    if (result.empty()) result = optional("PBS_JOBID");
    if (std::string const job = optional("LSB_JOBID"); result.empty() && !job.empty())
      result = index.empty() ? job : job + "[" + index + "]";
    return result.empty() ? optional("FLUX_JOB_ID") : result;
  }
  static std::string word(char const* name) {
    std::string value = optional(name);
    if (!value.empty()) return value;
    throw usage_error(
        {}, text("the environment variable ", name, " is not set"),
        text("Set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every process, or start with a launcher that does"));
  }
  static int number(char const* name, int least, int most) {
    const std::string value = word(name);
    int read = 0;
    auto const [end, code] = std::from_chars(value.data(), value.data() + value.size(), read);
    if (code == std::errc() && end == value.data() + value.size() && read >= least && read <= most) return read;
    throw usage_error({}, text("the environment variable ", name, " is '", value, "'"),
                      text("It must be a number from ", least, " to ", most));
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
