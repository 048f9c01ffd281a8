// SPDX-License-Identifier: Apache-2.0
// The engine of projected training: an engine of the schedule trains coordinates, and around it are the matrices and gradients
// that the trainer sees.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/clock.hpp"
#include "acco/collective/replicas.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/convert.hpp"
#include "acco/number/digest.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/projected/matrix_decay.hpp"
#include "acco/projected/projected_layout.hpp"
#include "acco/projected/projection.hpp"
#include "acco/projected/projection_settings.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/between_rounds.hpp"
#include "acco/round/engine.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/round/without_states.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/scoped_buffer.hpp"
#include "acco/storage/storage.hpp"

namespace ACCO_ENGINE_NAMESPACE {

/// One rank's. The trainer's parameters and gradients are whole, here, and never move. When a round starts, what has been
/// accumulated is projected and given to the engine of coordinates; when one has landed, its coordinates are expanded. Before the
/// first round of a step bases may be renewed, from the gradients of that round: those of the step where it has one round, of its
/// first part else.
template <class Rule, class Storage, class Backend>
class projected_engine final : public without_states<typename Storage::parameter_type, typename Storage::gradient_type>,
                               private between_rounds {
  static_assert(has_projection<Storage>,
                "acco: galore multiplies matrices: the storage lacks `projection_show`, or one of the steps beside it: "
                "host_storage and cuda_storage have them");
  static_assert(!replicates<Backend>, "acco: galore shares its coordinates' state among ranks: give it a world without replicas");
  static_assert(has_apply<Rule> && !matrix_rule<Rule>,
                "acco: galore trains coordinates one by one: give it an elementwise rule, adamw, lion, signum or sgd");

 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using master_type = typename Storage::master_type;
  using real = typename Storage::sum_type;
  using inner_engine = round_engine<Rule, Storage, Backend>;

  template <class Inner>
  projected_engine(projection_settings const& settings, Inner inner, Rule rule, Storage storage, Backend backend,
                   parameter_layout layout, options chosen)
      : settings_(settings),
        chosen_(checked(std::move(chosen), backend.rank())),
        layout_(std::move(layout)),
        decay_(rule),
        storage_(storage),
        projection_(layout_, settings_, backend.size(), {.rank = backend.rank()}),
        at_(layout_.tensor_count()),
        inner_(std::make_unique<schedule_of<Inner, typename inner_engine::works_type>>(std::move(inner)), std::move(rule),
               std::move(storage), std::move(backend), projection_.layout().inner(), of_inner(chosen_)) {
    decay_.check(layout_, matrices(), place());
    description lines;
    lines.add_all("galore.", settings_);
    lines.add_all("galore over ", layout_);
    inner_.made_for(lines.lines());
    inner_.watch(this);
  }
  projected_engine(projected_engine const&) = delete;
  projected_engine& operator=(projected_engine const&) = delete;

  void initialize(std::span<parameter_type const> values) override {
    allocate();
    const auto from = [&](std::size_t tensor) { return values.data() + layout_[tensor].offset; };
    inner_.initialize(coordinates_of(from));
    take_up();
    take_parameters(from);
  }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    allocate();
    std::vector<master_type> masters(inner_.place().rank == 0 ? layout_.size() : 0), coordinates;
    if (!masters.empty()) {
      read(0, layout_.size(), reinterpret_cast<std::byte*>(masters.data()));
      coordinates.resize(inner_.layout().size());
      for_others([&](std::size_t k) {
        std::copy_n(masters.data() + layout_[k].offset, layout_[k].size, coordinates.data() + inner_.layout()[k].offset);
      });
    }
    inner_.initialize_from([&](std::size_t first, std::size_t count, std::byte* to) {
      std::memcpy(to, coordinates.data() + first, count * sizeof(master_type));
    });
    take_up();
    take_masters(masters);
  }
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) override {
    return inner_.claim(memory, bytes, trained);
  }
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients) override {
    adopted_ = true;
    whole_parameters_ = parameters;
    whole_gradients_ = gradients;
    initialize(parameters);
  }
  void adopt(std::span<tensor_memory<parameter_type, gradient_type> const> tensors) override {
    adopted_ = true;
    at_.assign(tensors.begin(), tensors.end());
    allocate();
    const auto from = [&](std::size_t tensor) { return at_[tensor].parameters; };
    inner_.initialize(coordinates_of(from));
    take_up();
    take_parameters(from);
  }
  void set_parameters(std::span<parameter_type const> values) override {
    const auto from = [&](std::size_t tensor) { return values.data() + layout_[tensor].offset; };
    inner_.set_parameters(coordinates_of(from));
    take_parameters(from);
  }
  [[nodiscard]] bool at_rest() const noexcept override { return inner_.at_rest(); }
  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept override { return whole_parameters_; }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept override { return whole_gradients_; }
  [[nodiscard]] tensor_spans<parameter_type, gradient_type> tensor(std::size_t index) const noexcept override {
    const std::size_t size = layout_[index].size;
    return {{at_[index].parameters, size}, {at_[index].gradients, at_[index].gradients == nullptr ? 0 : size}};
  }
  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    accumulated_ = true;
    return inner_.accumulated(weight, loss_sum);
  }
  void poll() override { inner_.poll(); }
  void finish(unfinished rest) override {
    inner_.begin_finish(rest);
    while (!inner_.finish_round(rest)) continue;
    (void)inner_.gather_between(masters());
    show_masters();
    clear_gradients();
    inner_.end_finish();
  }

  void gather(std::span<parameter_type> out, weights) override {
    const auto room = shelf();
    auto* const here = room.template as<parameter_type>();
    with_committed([&](master_type const* z, std::span<double const> shrinks) {
      for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
        parameter_type* const to = out.data() + layout_[k].offset;
        if (projected_matrix const* const m = projected(k)) {
          projection_.expand(queue(), *m, z, shrinks[m->group], here);
          Storage::copy(queue(), static_cast<parameter_type const*>(here), to, layout_[k].size);
        } else if (frozen(k)) {
          Storage::copy(queue(), static_cast<parameter_type const*>(at_[k].parameters), to, layout_[k].size);
        } else {
          for_pieces(layout_[k].size, [&](std::size_t first, std::size_t count) {
            convert(z + inner_.layout()[k].offset + first, here, count);
            Storage::copy(queue(), static_cast<parameter_type const*>(here), to + first, count);
          });
        }
      }
      settle();  // `out` may be read, and the room goes
    });
  }
  void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights) override {
    const auto room = shelf();
    auto* const here = room.template as<master_type>();
    const auto give = [&](std::size_t offset, master_type const* from, std::size_t count) {
      Storage::visit_on_host(queue(), from, count, [&](master_type const* values, std::size_t index, std::size_t n) {
        if (n != 0) take(offset + index, n, reinterpret_cast<std::byte const*>(values));
      });
    };
    with_committed([&](master_type const* z, std::span<double const> shrinks) {
      for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
        auto const each = layout_[k];
        if (projected_matrix const* const m = projected(k)) {
          projection_.expand(queue(), *m, z, shrinks[m->group], here);
          give(each.offset, here, each.size);
        } else if (frozen(k)) {
          for_pieces(each.size, [&](std::size_t first, std::size_t count) {
            convert(static_cast<parameter_type const*>(at_[k].parameters) + first, here, count);
            give(each.offset + first, here, count);
          });
        } else {
          give(each.offset, z + inner_.layout()[k].offset, each.size);
        }
      }
    });
  }
  /// No snapshot ever reaches: none is kept.
  std::optional<rewound> rewind(std::uint64_t) override { return std::nullopt; }
  void sum_over_ranks(std::span<double> numbers) override { inner_.sum_over_ranks(numbers); }
  [[nodiscard]] double loss_scale() const noexcept override { return inner_.loss_scale(); }
  [[nodiscard]] std::span<double const> norms() const noexcept override { return inner_.norms(); }
  [[nodiscard]] double samples() const noexcept override { return inner_.samples(); }
  [[nodiscard]] std::uint64_t steps() const noexcept override { return inner_.steps(); }
  [[nodiscard]] round_totals const& totals() const noexcept override {
    totals_ = inner_.totals();
    totals_.bytes_sent += sent_for_bases_;
    return totals_;
  }
  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table = inner_.memory();
    if (!adopted_) {
      table.parameters += Storage::allocation_size(layout_.size() * sizeof(parameter_type), 6);
      table.gradients += Storage::allocation_size(layout_.size() * sizeof(gradient_type), 7);
    }
    table.projected = projection_.bytes() + Storage::allocation_size(masters_bytes(), 8);
    table.gathering = Storage::allocation_size(shelf_bytes(), 0);
    return table;
  }
  [[nodiscard]] parameter_layout const& layout() const noexcept override { return layout_; }
  [[nodiscard]] std::uint64_t state_digest() override { return mix(inner_.state_digest()) + projection_.digest(queue()); }
  /// Of all ranks' coordinates and slots, and of what every rank has alike. Not independent of how the world is cut: sums are.
  [[nodiscard]] std::uint64_t world_digest() override { return mix(inner_.world_digest()) + projection_.digest(queue()); }

  [[nodiscard]] state_shape shape() const noexcept override { return inner_.shape(); }
  [[nodiscard]] partition shares() const noexcept override { return inner_.shares(); }
  [[nodiscard]] std::vector<char> construction() const override { return inner_.construction(); }
  [[nodiscard]] options const& chosen() const noexcept override { return chosen_; }
  void copy_parameters(std::size_t tensor, std::byte* to) override {
    Storage::visit_on_host(queue(), static_cast<parameter_type const*>(at_[tensor].parameters), layout_[tensor].size,
                           [to](parameter_type const* from, std::size_t index, std::size_t count) {
                             if (count != 0)
                               std::memcpy(to + index * sizeof(parameter_type), from, count * sizeof(parameter_type));
                           });
  }
  [[nodiscard]] std::uint64_t frozen_values() const noexcept override { return 0; }
  void broadcast(std::span<char> bytes, int root) override { inner_.broadcast(bytes, root); }
  [[nodiscard]] std::vector<planned_bucket> encoding_plan() const override { return inner_.encoding_plan(); }
  void together(function_view<void()> action) override { inner_.together(action); }

  void leave(std::string_view reason) noexcept override { inner_.leave(reason); }
  [[nodiscard]] bool in_step() const noexcept override { return inner_.in_step(); }
  [[nodiscard]] error_place place() const noexcept override { return inner_.place(); }

 private:
  static options checked(options chosen, int rank) {
    chosen.check({.rank = rank});
    const auto refuse = [&](char const* what, char const* advice) {
      throw usage_error({.rank = rank}, text("options::", std::string_view(what), " is not there for galore"), text(advice));
    };
    if (chosen.snapshots != 0) refuse("snapshots", "Leave it 0: a snapshot would have to hold bases, too");
    if (chosen.average_decay != 0) refuse("average_decay", "Leave it 0: coordinates of different bases have no mean");
    if (chosen.digest_every != 0) refuse("digest_every", "Ask world_digest() at a report");
    return chosen;
  }
  static options of_inner(options chosen) {
    chosen.check_habits = habit_checks::off;  // its trainer is this engine
    chosen.stable_addresses = false;
    return chosen;
  }
  [[noreturn]] std::uint64_t refuse_states() const override {
    throw usage_error(place(), text("checkpoints of galore are not there yet"),
                      text("save_model writes the committed weights; initialize from them"));
  }

  /// By what an update without a gradient multiplies z, and so B.
  [[nodiscard]] double kept(std::size_t group, double rate) const { return decay_.kept(layout_.groups()[group], rate); }

  // What the trainer has.

  [[nodiscard]] std::vector<projected_matrix> const& matrices() const noexcept { return projection_.layout().matrices(); }
  [[nodiscard]] projected_matrix const* projected(std::size_t tensor) const noexcept { return projection_.layout().of(tensor); }
  [[nodiscard]] bool frozen(std::size_t tensor) const noexcept { return layout_.groups()[layout_[tensor].group].frozen; }

  /// visit(tensor) of those that are trained as they are.
  template <class Visitor>
  void for_others(Visitor&& visit) const {
    for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
      if (projected(k) == nullptr && !frozen(k)) visit(k);
    }
  }
  [[nodiscard]] typename Storage::queue& queue() noexcept { return inner_.queue(); }
  /// What has been enqueued is done, on the trainer's stream too.
  void settle() {
    queue().after_computation();
    queue().wait();
    queue().before_computation();
  }

  void allocate() {
    try {
      if (!adopted_) {
        parameters_ = storage_.allocate(layout_.size() * sizeof(parameter_type), 6);
        gradients_ = storage_.allocate(layout_.size() * sizeof(gradient_type), 7);
        whole_parameters_ = {parameters_.template as<parameter_type>(), layout_.size()};
        whole_gradients_ = {gradients_.template as<gradient_type>(), layout_.size()};
      }
      masters_ = storage_.allocate(masters_bytes(), 8);
      projection_.allocate(storage_);
    } catch (std::bad_alloc const&) {
      constexpr double mebibyte = 1 << 20;
      throw memory_error(
          place(),
          text("the buffers of this rank, ", static_cast<double>(memory().total()) / mebibyte, " MiB, could not be allocated"),
          text("Use more ranks, smaller types, or fewer parameters; memory() lists the buffers"));
    }
    for (std::size_t k = 0; !whole_parameters_.empty() && k < at_.size(); ++k)
      at_[k] = {whole_parameters_.data() + layout_[k].offset, whole_gradients_.data() + layout_[k].offset};
  }
  /// What has been allocated, once the ranks have agreed.
  void take_up() {
    projection_.begin(storage_, queue(), at_);
    clear_gradients();
  }
  /// What the inner engine begins with: coordinates 0, and all that is trained as it is, from(tensor), on either side of a bus.
  /// It lies where masters come together later.
  template <class From>
  [[nodiscard]] std::span<parameter_type const> coordinates_of(From&& from) {
    auto* const made = masters_.template as<parameter_type>();
    Storage::clear(queue(), made, inner_.layout().size());
    for_others(
        [&](std::size_t k) { Storage::copy(queue(), constant(from(k)), made + inner_.layout()[k].offset, layout_[k].size); });
    return {made, inner_.layout().size()};
  }
  template <class T>
  static T const* constant(T* from) noexcept {
    return from;
  }
  /// Of rank 0: the matrices that B begins as, and what is frozen, from(tensor), on either side of a bus. Collective; blocks.
  template <class From>
  void take_parameters(From&& from) {
    take_whole([&](std::size_t k) {
      parameter_type const* const values = from(k);
      if (values != at_[k].parameters) Storage::copy(queue(), values, at_[k].parameters, layout_[k].size);
      if (projected_matrix const* const m = projected(k))
        convert(static_cast<parameter_type const*>(at_[k].parameters), projection_.base(*m).data(), m->size());
    });
  }
  /// The same of masters in host memory.
  void take_masters(std::span<master_type const> masters) {
    const auto put = [&]<class T>(master_type const* from, T* to, std::size_t size) {
      std::vector<T> values(std::min<std::size_t>(size, std::size_t{1} << 18U));
      for (std::size_t first = 0; first < size; first += values.size()) {
        const std::size_t count = std::min(values.size(), size - first);
        elementwise::convert(from + first, values.data(), count);
        Storage::copy(queue(), static_cast<T const*>(values.data()), to + first, count);
        settle();
      }
    };
    take_whole([&](std::size_t k) {
      master_type const* const from = masters.data() + layout_[k].offset;
      if (projected_matrix const* const m = projected(k)) {
        put(from, projection_.base(*m).data(), m->size());
      } else {
        put(from, at_[k].parameters, layout_[k].size);
      }
    });
  }
  /// put(tensor) has rank 0 put what it has of a matrix into B, and of what is frozen into the trainer's. Collective; blocks.
  template <class Put>
  void take_whole(Put&& put) {
    for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
      projected_matrix const* const m = projected(k);
      if (layout_[k].size == 0 || (m == nullptr && !frozen(k))) continue;
      if (inner_.place().rank == 0) put(k);
      inner_.broadcast_between(
          m != nullptr ? chars_of(projection_.base(*m)) : chars_of(std::span(at_[k].parameters, layout_[k].size)), 0);
    }
    std::fill(projection_.shrinks().begin(), projection_.shrinks().end(), 1.0);
    keep_shown();
    moved_ = false;
    show();
  }
  template <class T>
  static std::span<char> chars_of(std::span<T> values) noexcept {
    return {reinterpret_cast<char*>(values.data()), values.size_bytes()};
  }
  /// to[i] = from[i], converted. Waits.
  template <class From, class To>
  void convert(From const* from, To* to, std::size_t count) {
    queue().after_computation();
    Storage::convert(queue(), from, to, count);
    queue().wait();
    queue().before_computation();
  }

  /// Room for the largest matrix that is gathered, and for so much of any other tensor.
  [[nodiscard]] std::size_t shelf_bytes() const noexcept {
    return projection_.layout().largest() * std::max(sizeof(master_type), sizeof(parameter_type));
  }
  [[nodiscard]] auto shelf() { return scoped_buffer(queue(), storage_.allocate(shelf_bytes(), 0)); }
  /// visit(first, count) of pieces that find room there.
  template <class Visitor>
  void for_pieces(std::size_t size, Visitor&& visit) const {
    const std::size_t most = projection_.layout().largest();
    for (std::size_t first = 0; first < size; first += most) visit(first, std::min(most, size - first));
  }

  /// The trainer's parameters, of the inner engine's in use, or of all masters, which have been gathered.
  void show() { projection_.show(queue(), inner_.parameters().data(), shown_shrinks_); }
  void show_masters() {
    keep_shown();
    projection_.show(queue(), static_cast<master_type const*>(masters().data()), shown_shrinks_);
  }
  /// What is shown is what has been committed.
  void keep_shown() { shown_shrinks_.assign(projection_.shrinks().begin(), projection_.shrinks().end()); }
  void clear_gradients() {
    if (!whole_gradients_.empty()) {
      Storage::clear(queue(), whole_gradients_.data(), whole_gradients_.size());
    } else {
      for (std::size_t k = 0; k < at_.size(); ++k) {
        if (at_[k].gradients != nullptr) Storage::clear(queue(), at_[k].gradients, layout_[k].size);
      }
    }
    accumulated_ = false;
  }
  /// action(all masters, by position, shrinks by group), of what is committed, the round in flight included.
  template <class Action>
  void with_committed(Action&& action) {
    inner_.outside_rounds([&] {
      (void)inner_.gather_between(masters());
      std::vector<double> shrinks(projection_.shrinks().begin(), projection_.shrinks().end());
      for (const std::size_t group : projection_.groups())
        if (inner_.committing()) shrinks[group] *= kept(group, inner_.rate());
      action(static_cast<master_type const*>(masters().data()), std::span<double const>(shrinks));
    });
  }
  [[nodiscard]] std::span<master_type> masters() const noexcept {
    return {masters_.template as<master_type>(), inner_.shares().padded_size()};
  }
  [[nodiscard]] std::size_t masters_bytes() const noexcept {
    return inner_.shares().padded_size() * std::max(sizeof(master_type), sizeof(parameter_type));
  }

  // Between rounds.

  void starting(bool begins_step) override {
    if (begins_step && (!renewed_ || inner_.steps() - *renewed_ >= settings_.every)) renew();
    if (!accumulated_) return;
    projection_.project(queue(), inner_.gradients().data());
    clear_gradients();
  }
  void landed(round_report& report) override {
    if (inner_.updates()) {
      moved_ = true;
      for (const std::size_t group : projection_.groups()) {
        double& committed = projection_.shrinks()[group];
        const double once = committed * kept(group, inner_.rate());
        shown_shrinks_[group] = once;
        if (commits(report.plan)) committed = once;
        if (report.plan.parameters == update::commit_and_predict)
          shown_shrinks_[group] = once * kept(group, chosen_.rate_at({samples(), steps()}, place()));
      }
    } else {
      keep_shown();
    }
    show();
    report.bytes_sent += std::exchange(untold_, 0);
    report.bytes_between += std::exchange(untold_between_, 0);
    report.bases = std::exchange(news_, std::nullopt);
  }
  /// New bases of the gradients that have been accumulated, on all ranks. Before that B <- W, and z <- 0.
  void renew() {
    const double begin = steady_seconds();
    std::uint64_t bytes = 0;
    const std::uint64_t to_groups_before = inner_.sent_to_groups();
    const auto found = projection_.find_bases(
        queue(), [&](real const* from, real* to, std::size_t count) { bytes += inner_.sum_between(from, to, count); });
    if (found == projection<Storage>::search::bases) {
      if (moved_) bytes += fold();
      const double overlap = projection_.take_bases(queue());
      inner_.forget_lost();
      renewed_ = inner_.steps();
      news_ = basis_report{.refresh = refreshes_++, .overlap = overlap, .seconds = steady_seconds() - begin, .bytes_sent = bytes};
    }
    sent_for_bases_ += bytes;
    untold_ += bytes;
    untold_between_ += inner_.sent_to_groups() - to_groups_before;
  }
  std::uint64_t fold() {
    std::uint64_t bytes = inner_.gather_between(masters());
    projection_.fold(queue(), static_cast<master_type const*>(masters().data()));
    for (projected_matrix const& m : matrices()) inner_.clear_masters(m.z, m.rank * m.other());
    keep_shown();
    bytes += inner_.show_changed_masters();
    moved_ = false;
    show();
    return bytes;
  }

  projection_settings settings_;
  options chosen_;
  parameter_layout layout_;
  matrix_decay<Rule> decay_;
  Storage storage_;
  projection<Storage> projection_;

  bool adopted_ = false;                                          // the trainer's own arrays
  std::vector<tensor_memory<parameter_type, gradient_type>> at_;  // by tensor
  std::span<parameter_type> whole_parameters_;                    // empty where tensors lie apart
  std::span<gradient_type> whole_gradients_;
  typename Storage::buffer parameters_, gradients_, masters_;

  std::vector<double> shown_shrinks_;     // of the parameters in use, by group
  bool accumulated_ = false;              // since the last round started
  bool moved_ = false;                    // coordinates are not 0 any more
  std::optional<std::uint64_t> renewed_;  // at which step
  std::size_t refreshes_ = 0;
  std::optional<basis_report> news_;  // for the next report
  std::uint64_t sent_for_bases_ = 0, untold_ = 0, untold_between_ = 0;
  mutable round_totals totals_;

  inner_engine inner_;  // its threads and rounds use what is above
};

}  // namespace ACCO_ENGINE_NAMESPACE
