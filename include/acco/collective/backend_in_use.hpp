// SPDX-License-Identifier: Apache-2.0
// A backend behind a plain interface: what an engine asks of it, a few times a round. All backends share the engine of
// a storage, which is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/handed.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/storage_traits.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What has nothing to do with types. Members are those of the backend (backend.hpp); of what its traits do not declare
/// nothing is done, and nothing counted.
class ranks_in_use {
 public:
  explicit ranks_in_use(backend_traits const& of_backend) noexcept : traits(of_backend) {}
  ranks_in_use(ranks_in_use const&) = delete;
  ranks_in_use& operator=(ranks_in_use const&) = delete;
  virtual ~ranks_in_use() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Of a backend of two levels, in how many groups its ranks are; else 0.
  [[nodiscard]] virtual int groups() const = 0;
  /// Becomes its own duplicate.
  virtual void duplicate() = 0;
  virtual void abort(std::string_view reason) const = 0;
  virtual void close() const = 0;
  virtual void share(bool same_everywhere) const = 0;
  [[nodiscard]] virtual sent_bytes bytes_sent() const = 0;
  [[nodiscard]] virtual std::size_t buffer_bytes() const = 0;
  /// In words; empty where the backend does not tell.
  [[nodiscard]] virtual char const* progress_policy() const = 0;

  const backend_traits traits;
};

/// The same with the operations on a storage's arrays.
template <class Storage>
class backend_in_use : public ranks_in_use {
 public:
  using queue = typename Storage::queue;
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;

  explicit backend_in_use(backend_traits const& of_backend) noexcept
      : ranks_in_use(of_backend),
        sums_in_gradients(of_backend.sums_in_element_type && !std::is_same_v<gradient_type, sum_type>) {}

  /// Whether it leaves sums in the gradient's type, and that is not the sums'.
  const bool sums_in_gradients;

  /// Its levels; null where it has none.
  [[nodiscard]] virtual backend_in_use* inside() = 0;
  [[nodiscard]] virtual backend_in_use* between() = 0;
  [[nodiscard]] virtual queue make_queue(Storage const& storage) = 0;
  virtual void watch(queue& q) const = 0;

  virtual void all_reduce(queue& q, partial<double const> in, replicated<double> out) = 0;
  /// Unless `sums_in_gradients`. `adds`: to the destination, where the backend accumulates.
  virtual void reduce_scatter(queue& q, partial<gradient_type const> in, sharded<sum_type> out, bool adds) = 0;
  /// Where `sums_in_gradients`.
  virtual void reduce_scatter_in_gradients(queue& q, partial<gradient_type const> in, sharded<gradient_type> out) = 0;
  virtual void all_gather(queue& q, sharded<parameter_type const> in, replicated<parameter_type> out) = 0;
  virtual void all_gather(queue& q, sharded<std::byte const> in, replicated<std::byte> out) = 0;
  virtual void all_to_all(queue& q, std::span<std::byte const> in, std::span<std::byte> out) = 0;
  /// Of parameters, doubles or characters.
  template <class T>
  void broadcast(queue& q, replicated<T> whole, int root) {
    if constexpr (std::is_same_v<T, parameter_type>) {
      broadcast_parameters(q, whole, root);
    } else if constexpr (std::is_same_v<T, double>) {
      broadcast_numbers(q, whole, root);
    } else {
      broadcast_characters(q, whole, root);
    }
  }

 private:
  virtual void broadcast_parameters(queue& q, replicated<parameter_type> whole, int root) = 0;
  virtual void broadcast_numbers(queue& q, replicated<double> whole, int root) = 0;
  virtual void broadcast_characters(queue& q, replicated<char> whole, int root) = 0;
};

/// `Base`, which is one of the two, for a backend that it holds.
template <class Base, class Backend>
class ranks_of : public Base {
 public:
  explicit ranks_of(Backend backend) : Base(traits_of<Backend>), held_(std::move(backend)) {}

  [[nodiscard]] Backend& held() noexcept { return held_; }

  [[nodiscard]] int rank() const override { return held_.rank(); }
  [[nodiscard]] int size() const override { return held_.size(); }
  [[nodiscard]] int groups() const override {
    if constexpr (can.has_levels) return held_.between().size();
    return 0;
  }
  void duplicate() override {
    if constexpr (can.duplicates) held_ = held_.duplicate();
  }
  void abort([[maybe_unused]] std::string_view reason) const override {
    if constexpr (can.tells_departures) held_.abort(reason);
  }
  void close() const override {
    if constexpr (can.tells_departures) held_.close();
  }
  void share([[maybe_unused]] bool same_everywhere) const override {
    if constexpr (can.shares_device) held_.share(same_everywhere);
  }
  [[nodiscard]] sent_bytes bytes_sent() const override {
    if constexpr (can.counts_bytes && can.has_levels) return {held_.bytes_sent(), held_.between().bytes_sent()};
    if constexpr (can.counts_bytes) return {held_.bytes_sent()};
    return {};
  }
  [[nodiscard]] std::size_t buffer_bytes() const override {
    if constexpr (can.allocates_messages) return held_.buffer_bytes();
    return 0;
  }
  [[nodiscard]] char const* progress_policy() const override {
    if constexpr (can.names_progress) return held_.progress_policy();
    return "";
  }

 protected:
  static constexpr backend_traits can = traits_of<Backend>;
  Backend held_;
};

/// The one of type `Backend`. `Encoded`: bytes are to be gathered; what a backend for others lacks is not asked for.
template <class Backend, class Storage, bool Encoded = true>
class backend_of final : public ranks_of<backend_in_use<Storage>, Backend> {
  using base = ranks_of<backend_in_use<Storage>, Backend>;
  using base::can;
  using base::held_;

 public:
  using base::base;
  using typename base::gradient_type;
  using typename base::parameter_type;
  using typename base::queue;
  using typename base::sum_type;

  [[nodiscard]] backend_in_use<Storage>* inside() override {
    if constexpr (can.has_levels) return level(inside_, held_.inside());
    return nullptr;
  }
  [[nodiscard]] backend_in_use<Storage>* between() override {
    if constexpr (can.has_levels) return level(between_, held_.between());
    return nullptr;
  }
  [[nodiscard]] queue make_queue([[maybe_unused]] Storage const& storage) override {
    if constexpr (storage_traits_of<Storage>.makes_queue) {
      return storage.make_queue(held_);
    } else {
      return acco::make_queue<queue>(held_);
    }
  }
  void watch([[maybe_unused]] queue& q) const override {
    if constexpr (can.watched) q.watch(held_.watch());
  }

  void all_reduce(queue& q, partial<double const> in, replicated<double> out) override { held_.all_reduce(q, in, out); }
  void reduce_scatter(queue& q, partial<gradient_type const> in, sharded<sum_type> out, bool adds) override {
    if constexpr (std::is_same_v<reduced_by<Backend, gradient_type, sum_type>, sum_type>) {
      if constexpr (can.accumulates) {
        if (adds) return held_.reduce_scatter(q, in, out, accumulate);
      }
      held_.reduce_scatter(q, in, out);
    }
  }
  void reduce_scatter_in_gradients(queue& q, partial<gradient_type const> in, sharded<gradient_type> out) override {
    if constexpr (can.sums_in_element_type) held_.reduce_scatter(q, in, out);
  }
  void all_gather(queue& q, sharded<parameter_type const> in, replicated<parameter_type> out) override {
    held_.all_gather(q, in, out);
  }
  void all_gather([[maybe_unused]] queue& q, [[maybe_unused]] sharded<std::byte const> in,
                  [[maybe_unused]] replicated<std::byte> out) override {
    if constexpr (Encoded) held_.all_gather(q, in, out);
  }
  void all_to_all(queue& q, std::span<std::byte const> in, std::span<std::byte> out) override {
    if constexpr (can.passes) held_.all_to_all(q, in, out);
  }

 private:
  using level_type = std::unique_ptr<backend_in_use<Storage>>;
  template <class Level>
  [[nodiscard]] static backend_in_use<Storage>* level(level_type& kept, Level of) {
    if (!kept) kept = std::make_unique<backend_of<Level, Storage>>(std::move(of));
    return kept.get();
  }
  void broadcast_parameters(queue& q, replicated<parameter_type> whole, int root) override { held_.broadcast(q, whole, root); }
  void broadcast_numbers(queue& q, replicated<double> whole, int root) override { held_.broadcast(q, whole, root); }
  void broadcast_characters(queue& q, replicated<char> whole, int root) override { held_.broadcast(q, whole, root); }

  level_type inside_, between_;  // of the duplicate: made when first used
};

/// The one way to make one: acco::compiled has it of usual types.
template <class Backend, class Storage, bool Encoded>
[[nodiscard]] handed<backend_in_use<Storage>> new_backend(Backend backend) {
  return hand<backend_in_use<Storage>, backend_of<Backend, Storage, Encoded>>(std::move(backend));
}

}  // namespace ACCO_SIMD_NAMESPACE
