// SPDX-License-Identifier: Apache-2.0
// Backends behind one type, chosen at run time: an engine is compiled once for a rule, whatever carries its messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <acco/collective/backend.hpp>
#include <acco/layout/distribution.hpp>
#include <acco/storage/host_queue.hpp>

namespace acco_c {

/// What engines over floats ask of a backend, as calls of a table. Arrays that are only carried are bytes.
class carrier {
 public:
  carrier() = default;
  carrier(carrier const&) = delete;
  carrier& operator=(carrier const&) = delete;
  virtual ~carrier() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  virtual void all_reduce(acco::host_queue& queue, std::span<double const> in, std::span<double> out) = 0;
  virtual void reduce_scatter(acco::host_queue& queue, std::span<float const> in, std::span<float> out, bool add) = 0;
  virtual void all_gather(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) = 0;
  virtual void all_to_all(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) = 0;
  virtual void broadcast(acco::host_queue& queue, std::span<std::byte> whole, int root) = 0;
  virtual void abort(std::string_view reason) const noexcept = 0;
  virtual void close() const noexcept = 0;
  [[nodiscard]] virtual std::shared_ptr<carrier> duplicate() const = 0;
  [[nodiscard]] virtual std::shared_ptr<carrier> split(int color, int key, double deadline) const = 0;
  [[nodiscard]] virtual std::uint64_t bytes_sent() const noexcept = 0;
  [[nodiscard]] virtual std::size_t buffer_bytes() const noexcept = 0;
  [[nodiscard]] virtual char const* progress_policy() const noexcept = 0;
  [[nodiscard]] virtual acco::queue_driver driver() const noexcept = 0;
};

/// Any backend of host memory as a carrier.
template <class Backend>
class carrier_of final : public carrier {
  static constexpr acco::backend_traits can = acco::traits_of<Backend>;
  static_assert(can.accumulates && can.passes && can.tells_departures && can.duplicates && can.splits && can.counts_bytes);

 public:
  explicit carrier_of(Backend backend) : backend_(std::move(backend)) {}

  [[nodiscard]] int rank() const noexcept override { return backend_.rank(); }
  [[nodiscard]] int size() const noexcept override { return backend_.size(); }
  void all_reduce(acco::host_queue& queue, std::span<double const> in, std::span<double> out) override {
    backend_.all_reduce(queue, acco::partial<double const>(in), acco::replicated<double>(out));
  }
  void reduce_scatter(acco::host_queue& queue, std::span<float const> in, std::span<float> out, bool add) override {
    if (add) {
      backend_.reduce_scatter(queue, acco::partial<float const>(in), acco::sharded<float>(out), acco::accumulate);
    } else {
      backend_.reduce_scatter(queue, acco::partial<float const>(in), acco::sharded<float>(out));
    }
  }
  void all_gather(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) override {
    backend_.all_gather(queue, acco::sharded<std::byte const>(in), acco::replicated<std::byte>(out));
  }
  void all_to_all(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) override {
    backend_.all_to_all(queue, in, out);
  }
  void broadcast(acco::host_queue& queue, std::span<std::byte> whole, int root) override {
    backend_.broadcast(queue, acco::replicated<std::byte>(whole), root);
  }
  void abort(std::string_view reason) const noexcept override { backend_.abort(reason); }
  void close() const noexcept override { backend_.close(); }
  [[nodiscard]] std::shared_ptr<carrier> duplicate() const override { return std::make_shared<carrier_of>(backend_.duplicate()); }
  [[nodiscard]] std::shared_ptr<carrier> split(int color, int key, double deadline) const override {
    return std::make_shared<carrier_of>(backend_.split(color, key, deadline));
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept override { return backend_.bytes_sent(); }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept override {
    if constexpr (can.allocates_messages) return backend_.buffer_bytes();
    return 0;
  }
  [[nodiscard]] char const* progress_policy() const noexcept override {
    if constexpr (can.names_progress) return backend_.progress_policy();
    return "";
  }
  [[nodiscard]] acco::queue_driver driver() const noexcept override {
    if constexpr (can.driven) return backend_.driver();
    return {};
  }

 private:
  Backend backend_;
};

/// The backend of this library's engines.
class any_backend {
 public:
  static constexpr acco::backend_traits traits{.accumulates = true,
                                               .passes = true,
                                               .tells_departures = true,
                                               .duplicates = true,
                                               .splits = true,
                                               .driven = true,
                                               .counts_bytes = true,
                                               .allocates_messages = true,
                                               .names_progress = true};

  explicit any_backend(std::shared_ptr<carrier> held) : held_(std::move(held)) {}

  [[nodiscard]] int rank() const noexcept { return held_->rank(); }
  [[nodiscard]] int size() const noexcept { return held_->size(); }
  void all_reduce(acco::host_queue& queue, acco::partial<double const> in, acco::replicated<double> out) const {
    held_->all_reduce(queue, in.local(), out.whole());
  }
  void reduce_scatter(acco::host_queue& queue, acco::partial<float const> in, acco::sharded<float> out) const {
    held_->reduce_scatter(queue, in.local(), out.slice(), false);
  }
  void reduce_scatter(acco::host_queue& queue, acco::partial<float const> in, acco::sharded<float> out,
                      acco::accumulate_t) const {
    held_->reduce_scatter(queue, in.local(), out.slice(), true);
  }
  template <class T>
  void all_gather(acco::host_queue& queue, acco::sharded<T const> in, acco::replicated<T> out) const {
    held_->all_gather(queue, std::as_bytes(in.slice()), std::as_writable_bytes(out.whole()));
  }
  void all_to_all(acco::host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    held_->all_to_all(queue, in, out);
  }
  template <class T>
  void broadcast(acco::host_queue& queue, acco::replicated<T> whole, int root) const {
    held_->broadcast(queue, std::as_writable_bytes(whole.whole()), root);
  }
  void abort(std::string_view reason) const noexcept { held_->abort(reason); }
  void close() const noexcept { held_->close(); }
  [[nodiscard]] any_backend duplicate() const { return any_backend(held_->duplicate()); }
  [[nodiscard]] any_backend split(int color, int key = 0, double deadline = 600) const {
    return any_backend(held_->split(color, key, deadline));
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return held_->bytes_sent(); }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return held_->buffer_bytes(); }
  [[nodiscard]] char const* progress_policy() const noexcept { return held_->progress_policy(); }
  [[nodiscard]] acco::queue_driver driver() const noexcept { return held_->driver(); }

 private:
  std::shared_ptr<carrier> held_;
};

}  // namespace acco_c
