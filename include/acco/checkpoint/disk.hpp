// SPDX-License-Identifier: Apache-2.0
// How checkpoints reach the disk: the system calls, an interface, so that tests can let each of them fail, or lose what
// was not synced; and what is made of them.
#pragma once

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// A call that failed: which, on what, and why.
class disk_error : public std::exception {
 public:
  disk_error(char const* call, std::string const& path, int number)
      : message_(std::string(call) + " " + path + ": " + std::generic_category().message(number)), number_(number) {}
  [[nodiscard]] char const* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  std::string message_;
  int number_;
};

/// The system calls that change a disk. Each does, returns, and leaves in errno what POSIX says of the call that it
/// names. Any thread may call them.
class system_calls {
 public:
  system_calls() = default;
  system_calls(system_calls const&) = delete;
  system_calls& operator=(system_calls const&) = delete;
  virtual ~system_calls() = default;

  virtual int mkdir(std::string const& path) { return ::mkdir(path.c_str(), 0777); }
  virtual int open(std::string const& path, int flags) { return ::open(path.c_str(), flags, 0666); }
  /// Linux's: takes room for these bytes, so that writing them finds the disk not full.
  virtual int fallocate(int file, std::uint64_t at, std::uint64_t bytes) {
    return ::fallocate(file, 0, static_cast<off_t>(at), static_cast<off_t>(bytes));
  }
  virtual ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) {
    return ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
  }
  virtual int fsync(int file) { return ::fsync(file); }
  virtual int flock(int file, int how) { return ::flock(file, how); }
  virtual int close(int file) { return ::close(file); }
  virtual int rename(std::string const& from, std::string const& to) { return ::rename(from.c_str(), to.c_str()); }
  virtual int link(std::string const& file, std::string const& name) { return ::link(file.c_str(), name.c_str()); }
  virtual int unlink(std::string const& path) { return ::unlink(path.c_str()); }
  virtual int rmdir(std::string const& path) { return ::rmdir(path.c_str()); }
  /// Says what is worth knowing, and stops nobody: on standard error.
  virtual void note(std::string const& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); }

  /// `note`, for the first that comes.
  void note_once(std::string const& sentence) {
    if (!told_.exchange(true)) note(sentence);
  }

 private:
  std::atomic<bool> told_{false};
};

/// The system's own, the same for all of this process.
[[nodiscard]] inline system_calls& real_calls() {
  static system_calls real;
  return real;
}

/// The calls by which a rank of this process writes. A program may put its own in their place, before the first save:
/// they must outlive the optimizers. Ranks that are threads ask at the same time.
inline std::function<system_calls&(int rank)> calls_of_rank = [](int) -> system_calls& { return real_calls(); };

/// A call again, as long as a signal interrupts it. Neither for fsync nor for close.
template <class Call>
std::invoke_result_t<Call&> again(Call&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

/// Such a call, which makes a file larger. Beyond the process's limit (`ulimit -f`) it fails with EFBIG, as POSIX has
/// it, but the signal that comes with it, and ends the process, reaches nobody: this thread blocks it meanwhile, and
/// takes its own back. The process's handlers stay as they are.
template <class Call>
std::invoke_result_t<Call&> again_without_signal(Call&& call) {
  sigset_t too_large, before, pending;
  ::sigemptyset(&too_large);
  ::sigaddset(&too_large, SIGXFSZ);
  ::sigemptyset(&pending);
  ::pthread_sigmask(SIG_BLOCK, &too_large, &before);
  ::sigpending(&pending);
  const auto result = again(call);
  const int number = errno;
  constexpr timespec at_once{};
  if (result < 0 && number == EFBIG && ::sigismember(&pending, SIGXFSZ) == 0) ::sigtimedwait(&too_large, nullptr, &at_once);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = number;
  return result;
}

/// Whether two paths lead to one file.
[[nodiscard]] inline bool is_one_file(std::string const& a, std::string const& b) noexcept {
  struct stat one{}, other{};
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 && one.st_ino == other.st_ino &&
         one.st_dev == other.st_dev;
}

/// What is done with a disk. All members throw `disk_error`. Any thread may call them.
class disk {
 public:
  explicit disk(system_calls& by) noexcept : by_(&by) {}

  /// Creates a folder that may exist already, in one that exists; whether it did not.
  bool make_folder(std::string const& path) const {
    if (again([&] { return by_->mkdir(path); }) == 0) return true;
    if (errno != EEXIST) raise("mkdir", path);
    return false;
  }
  /// Opens for writing, and creates it where it is not there.
  [[nodiscard]] int open_to_write(std::string const& path) const {
    const int file = again([&] { return by_->open(path, O_CREAT | O_WRONLY | O_CLOEXEC); });
    if (file < 0) raise("open", path);
    return file;
  }
  [[nodiscard]] int open_folder(std::string const& path) const {
    const int folder = again([&] { return by_->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    if (folder < 0) raise("open", path);
    return folder;
  }
  /// Takes room for these bytes, where the file system can.
  void reserve(int file, std::string const& path, std::uint64_t at, std::uint64_t bytes) const {
    if (bytes == 0) return;
    const int failed = again_without_signal([&] { return by_->fallocate(file, at, bytes); });
    if (failed != 0 && errno != EOPNOTSUPP && errno != ENOSYS) raise("fallocate", path);
  }
  void write(int file, std::string const& path, std::uint64_t at, std::span<std::byte const> bytes) const {
    while (!bytes.empty()) {
      const auto written = again_without_signal([&] { return by_->pwrite(file, bytes, at); });
      if (written < 0) raise("pwrite", path);
      if (written == 0) throw disk_error("pwrite", path, ENOSPC);
      at += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void sync(int file, std::string const& path) const {
    if (by_->fsync(file) != 0) raise("fsync", path);  // never again: the kernel has dropped what it could not write
  }
  /// Where the file system does not sync folders (some of networks and of user space), that is told once.
  void sync_folder(std::string const& path) const {
    const int folder = open_folder(path);
    const int failed = by_->fsync(folder) != 0 ? errno : 0;
    by_->close(folder);
    if (failed == 0) return;
    const disk_error why("fsync", path, failed);
    if (failed != EINVAL && failed != EOPNOTSUPP && failed != ENOSYS) throw why;
    by_->note_once(std::string("acco: ") + why.what() +
                   ". This file system does not sync folders: after a power failure the newest files may be missing");
  }
  /// Locks a file or a folder that is open, as flock does; whether nobody else has it. It does not wait.
  [[nodiscard]] bool try_lock(int file, std::string const& path, int how) const {
    if (again([&] { return by_->flock(file, how | LOCK_NB); }) == 0) return true;
    if (errno != EWOULDBLOCK) raise("flock", path);
    return false;
  }
  void close(int file, std::string const& path) const {
    if (by_->close(file) != 0 && errno != EINTR) raise("close", path);
  }
  /// Of what nobody will read: how it ends does not matter.
  void close_quietly(int file) const noexcept { by_->close(file); }
  void rename(std::string const& from, std::string const& to) const {
    if (again([&] { return by_->rename(from, to); }) != 0) raise("rename", from + " to " + to);
  }
  /// A second name for a file, which is in no folder that is on another file system; whether there is one now.
  [[nodiscard]] bool link(std::string const& file, std::string const& name) const {
    (void)again([&] { return by_->link(file, name); });
    return is_one_file(file, name);  // a network's file system may say that it failed where it did not
  }
  void remove_file(std::string const& path) const {
    if (again([&] { return by_->unlink(path); }) != 0 && errno != ENOENT) raise("unlink", path);
  }
  /// With all that it holds; of a link, the link. Another may be at it, too.
  void remove_folder(std::string const& path) const {
    std::error_code none;
    if (std::filesystem::symlink_status(path, none).type() == std::filesystem::file_type::symlink) return remove_file(path);
    std::vector<std::pair<std::string, bool>> inside;
    std::error_code failed;
    for (std::filesystem::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
      std::error_code unknown;
      inside.emplace_back(at->path().string(), at->symlink_status(unknown).type() == std::filesystem::file_type::directory);
    }
    for (auto const& [name, folder] : inside) folder ? remove_folder(name) : remove_file(name);
    if (again([&] { return by_->rmdir(path); }) != 0 && errno != ENOENT) raise("rmdir", path);
  }

 private:
  [[noreturn]] static void raise(char const* call, std::string const& path) { throw disk_error(call, path, errno); }
  system_calls* by_;
};

/// A file that is open for writing; closed with the object, where `sync_and_close` was not called.
class file_to_write {
 public:
  file_to_write(disk on, std::string path) : disk_(on), path_(std::move(path)), file_(disk_.open_to_write(path_)) {}
  /// One that has all its bytes already, durable: what is written is dropped.
  static file_to_write whole(disk on, std::string path) { return {on, std::move(path), -1}; }
  file_to_write(file_to_write&& other) noexcept
      : disk_(other.disk_),
        path_(std::move(other.path_)),
        file_(std::exchange(other.file_, -1)),
        whole_(other.whole_),
        written_(other.written_) {}
  file_to_write& operator=(file_to_write&&) = delete;
  ~file_to_write() {
    if (file_ >= 0) disk_.close_quietly(file_);
  }
  void reserve(std::uint64_t at, std::uint64_t bytes) {
    if (!whole_) disk_.reserve(file_, path_, at, bytes);
  }
  void write(std::uint64_t at, std::span<std::byte const> bytes) {
    if (whole_) return;
    written_ = written_ || !bytes.empty();
    disk_.write(file_, path_, at, bytes);
  }
  void sync_and_close() {
    if (written_) disk_.sync(file_, path_);
    close();
  }
  void close() {
    if (!whole_) disk_.close(std::exchange(file_, -1), path_);
  }

 private:
  file_to_write(disk on, std::string path, int none) : disk_(on), path_(std::move(path)), file_(none), whole_(true) {}

  disk disk_;
  std::string path_;
  int file_;
  bool whole_ = false, written_ = false;
};

/// A folder that is this process's while the object lives, and the process: the system ends the lock with either.
class locked_folder {
 public:
  /// Throws `disk_error` where the folder is not there, or cannot be locked: `EWOULDBLOCK` where another has it.
  locked_folder(disk on, std::string const& path, int how) : disk_(on), folder_(on.open_folder(path)) {
    try {
      if (!disk_.try_lock(folder_, path, how)) throw disk_error("flock", path, EWOULDBLOCK);
    } catch (...) {
      disk_.close_quietly(folder_);
      throw;
    }
  }
  locked_folder(locked_folder const&) = delete;
  locked_folder& operator=(locked_folder const&) = delete;
  ~locked_folder() { disk_.close_quietly(folder_); }
  /// Whether this path still leads to it.
  [[nodiscard]] bool is(std::string const& path) const noexcept {
    struct stat mine{}, found{};
    return ::fstat(folder_, &mine) == 0 && ::stat(path.c_str(), &found) == 0 && mine.st_ino == found.st_ino &&
           mine.st_dev == found.st_dev;
  }

 private:
  disk disk_;
  int folder_;
};

/// A file that is open for reading.
class file_to_read {
 public:
  /// Throws `disk_error`, or `std::runtime_error` where it is no file but a pipe, a device or the like: nothing waits
  /// for those.
  explicit file_to_read(std::string path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (file_ < 0) throw disk_error("open", path_, errno);
    struct stat found{};
    const int number = ::fstat(file_, &found) != 0 ? errno : S_ISDIR(found.st_mode) ? EISDIR : 0;
    if (number == 0 && S_ISREG(found.st_mode)) {
      size_ = static_cast<std::uint64_t>(found.st_size);
      return;
    }
    ::close(file_);
    if (number != 0) throw disk_error("open", path_, number);
    throw std::runtime_error(path_ + " is no regular file");
  }
  file_to_read(file_to_read&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}
  file_to_read& operator=(file_to_read&&) = delete;
  ~file_to_read() {
    if (file_ >= 0) ::close(file_);
  }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// That these bytes will be read soon: the system fetches them meanwhile.
  void expect(std::uint64_t at, std::uint64_t bytes) const noexcept {
    (void)::posix_fadvise(file_, static_cast<off_t>(at), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }
  /// As many bytes as there is room for; throws where the file has fewer.
  void read(std::uint64_t at, std::span<std::byte> to) const {
    while (!to.empty()) {
      const auto got = ::pread(file_, to.data(), to.size(), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw disk_error("pread", path_, errno);
      if (got == 0) throw disk_error("pread beyond the end of", path_, EIO);
      at += static_cast<std::uint64_t>(got);
      to = to.subspan(static_cast<std::size_t>(got));
    }
  }

 private:
  std::string path_;
  int file_;
  std::uint64_t size_ = 0;
};

/// All of a file.
[[nodiscard]] inline std::vector<std::byte> read_file(std::string const& path) {
  const file_to_read file(path);
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes);
  return bytes;
}

}  // namespace ACCO_NAMESPACE::checkpoints
