// SPDX-License-Identifier: Apache-2.0
// A secret by which the ranks of a run know each other at start-up (component `openssl`). A header of its own: a
// program that gives no secret needs no OpenSSL.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "acco/error.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Knowledge of a secret, for gloo_options::secret, nccl_options::secret or rendezvous::tcp_options::secret: called
/// with a message, it gives HMAC-SHA-256 (RFC 2104) of it. The secret itself never leaves the process, and is
/// overwritten when the last copy goes. Cheap to copy; calls from several threads are safe.
class shared_secret {
 public:
  static constexpr std::size_t least = 16, most = 4096;  ///< bytes of a secret

  /// Throws `usage_error` where the secret is too short to be one. It should be drawn at random: `openssl rand -hex
  /// 32`.
  explicit shared_secret(std::string_view secret) : secret_(std::make_shared<bytes>()) {
    secret.copy(secret_->value.data(), most);
    secret_->size = secret.size();
    check();
  }
  /// The first line of a file that only its owner may read or write. Throws `usage_error` where it cannot be read, or
  /// others may.
  [[nodiscard]] static shared_secret from_file(std::filesystem::path const& file) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::file_status status = fs::status(file, failed);
    if (!fs::is_regular_file(status))
      throw usage_error({}, text("the file of the shared secret cannot be read: ", std::string_view(file.native())),
                        text("Give a file that is there on every rank's host"));
    if ((status.permissions() & (fs::perms::group_all | fs::perms::others_all)) != fs::perms::none)
      throw usage_error({}, text("others may read or write the file of the shared secret: ", std::string_view(file.native())),
                        text("chmod 600, and draw another secret"));
    shared_secret result;
    std::ifstream in;
    in.rdbuf()->pubsetbuf(nullptr, 0);  // no copy stays in a buffer
    in.open(file, std::ios::binary);
    in.read(result.secret_->value.data(), most + 1);
    const std::string_view read(result.secret_->value.data(), static_cast<std::size_t>(in.gcount()));
    result.secret_->size = std::min(read.size(), read.find_first_of("\r\n"));
    result.check();
    return result;
  }

  [[nodiscard]] std::string operator()(std::string_view message) const {
    unsigned char code[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    auto const* const from = reinterpret_cast<unsigned char const*>(message.data());
    if (HMAC(EVP_sha256(), secret_->value.data(), static_cast<int>(secret_->size), from, message.size(), code, &size) != nullptr)
      return {reinterpret_cast<char const*>(code), size};
    throw usage_error({}, text("OpenSSL makes no HMAC-SHA-256"), text("Check its installation and configuration (openssl.cnf)"));
  }

 private:
  struct bytes {
    std::array<char, most + 1> value{};
    std::size_t size = 0;
    bytes() = default;
    bytes(bytes const&) = delete;
    bytes& operator=(bytes const&) = delete;
    ~bytes() { OPENSSL_cleanse(value.data(), value.size()); }
  };
  shared_secret() : secret_(std::make_shared<bytes>()) {}
  void check() const {
    if (secret_->size >= least && secret_->size <= most) return;
    throw usage_error(
        {}, text("a shared secret of ", secret_->size, " bytes"),
        text("Give it ", least, " to ", most, " bytes that nobody can guess, such as `openssl rand -hex 32` prints"));
  }
  std::shared_ptr<bytes> secret_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
