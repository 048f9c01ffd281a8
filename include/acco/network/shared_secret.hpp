// SPDX-License-Identifier: Apache-2.0
// A secret by which the ranks of a run know each other at start-up (component `openssl`: the code is made by OpenSSL's
// libcrypto). A header of its own, so that a program that gives no secret needs no OpenSSL.
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
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Knowledge of a secret, for gloo_options::secret, nccl_options::secret or rendezvous::tcp_options::secret: called with a
/// message, it gives HMAC-SHA-256 (RFC 2104) of it. The secret itself never leaves the process, and is overwritten when the last
/// copy goes. Cheap to copy; calls from several threads are safe.
class shared_secret {
 public:
  static constexpr std::size_t least = 16, most = 4096;  ///< bytes of a secret

  /// Throws `usage_error` where the secret is too short to be one. It should be drawn at random: `openssl rand -hex 32`.
  explicit shared_secret(std::string_view secret) {
    if (secret.size() < least || secret.size() > most) {
      throw usage_error(
          {}, text("a shared secret of ", secret.size(), " bytes"),
          text("Give it ", least, " to ", most, " bytes that nobody can guess, such as `openssl rand -hex 32` prints"));
    }
    auto kept = std::make_shared<bytes>();
    std::copy(secret.begin(), secret.end(), kept->value.begin());
    kept->size = secret.size();
    secret_ = std::move(kept);
  }
  /// The first line of a file that only its owner may read or write. Throws `usage_error` where it cannot be read, or others may.
  [[nodiscard]] static shared_secret from_file(std::filesystem::path const& file) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::perms others = fs::perms::group_all | fs::perms::others_all;
    const fs::file_status status = fs::status(file, failed);
    if (!fs::is_regular_file(status))
      throw usage_error({}, text("the file of the shared secret cannot be read: ", std::string_view(file.native())),
                        text("Give a file that is there on every rank's host"));
    if ((status.permissions() & others) != fs::perms::none)
      throw usage_error({}, text("others may read or write the file of the shared secret: ", std::string_view(file.native())),
                        text("chmod 600, and draw another secret"));
    std::array<char, most + 1> line{};
    std::ifstream in;
    in.rdbuf()->pubsetbuf(nullptr, 0);  // no copy stays in a buffer
    in.open(file, std::ios::binary);
    in.read(line.data(), static_cast<std::streamsize>(line.size()));
    std::string_view read(line.data(), static_cast<std::size_t>(in.gcount()));
    read = read.substr(0, read.find_first_of("\r\n"));
    try {
      shared_secret result(read);
      OPENSSL_cleanse(line.data(), line.size());
      return result;
    } catch (...) {
      OPENSSL_cleanse(line.data(), line.size());
      throw;
    }
  }

  [[nodiscard]] std::string operator()(std::string_view message) const {
    unsigned char code[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (HMAC(EVP_sha256(), secret_->value.data(), static_cast<int>(secret_->size),
             reinterpret_cast<unsigned char const*>(message.data()), message.size(), code, &size) == nullptr) {
      throw usage_error({}, text("OpenSSL makes no HMAC-SHA-256"),
                        text("Check its installation and configuration (openssl.cnf)"));
    }
    return {reinterpret_cast<char const*>(code), size};
  }

 private:
  struct bytes {
    std::array<char, most> value{};
    std::size_t size = 0;
    bytes() = default;
    bytes(bytes const&) = delete;
    bytes& operator=(bytes const&) = delete;
    ~bytes() { OPENSSL_cleanse(value.data(), value.size()); }
  };
  std::shared_ptr<bytes const> secret_;
};

}  // namespace ACCO_SIMD_NAMESPACE
