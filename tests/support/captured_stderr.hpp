// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

/// While it lives, what the process writes to stderr goes into a file of its own. One at a time.
class captured_stderr {
 public:
  captured_stderr() : file_(std::tmpfile()), before_(dup(STDERR_FILENO)) {
    std::fflush(stderr);
    if (file_ == nullptr || before_ < 0 || dup2(fileno(file_), STDERR_FILENO) < 0) std::abort();
  }
  captured_stderr(captured_stderr const&) = delete;
  captured_stderr& operator=(captured_stderr const&) = delete;
  ~captured_stderr() {
    std::fflush(stderr);
    dup2(before_, STDERR_FILENO);
    close(before_);
    std::fclose(file_);
  }

  /// What has been written so far.
  [[nodiscard]] std::string text() const {
    std::fflush(stderr);
    std::string all;
    char piece[512];
    for (off_t at = 0;;) {
      const ssize_t got = pread(fileno(file_), piece, sizeof piece, at);
      if (got <= 0) return all;
      all.append(piece, static_cast<std::size_t>(got));
      at += got;
    }
  }

 private:
  std::FILE* file_;
  int before_;
};
