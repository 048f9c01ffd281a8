// SPDX-License-Identifier: Apache-2.0
// The engine of galore: an engine of the schedule that trains coordinates, and the matrices that follow them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "acco/collective/backend_in_use.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/function_view.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/finite_arrays.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/projected/matrix_decay.hpp"
#include "acco/projected/projected_layout.hpp"
#include "acco/projected/projection.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/engine.hpp"
#include "acco/round/outside_rounds.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's. W and its gradient are frozen tensors to the engine below, which sends none of them: before gradients
/// leave, those of W are projected, and become those of z; when a round has landed, W moves as z has moved. Every rank
/// does the same with the same numbers.
template <class Storage>
class galore_engine : public round_engine<Storage> {
  using engine = round_engine<Storage>;

 public:
  using real = typename Storage::master_type;
  using parameter_type = real;
  using gradient_type = real;
  using lent_tensors = std::span<tensor_memory<real, real> const>;

  galore_engine(projection_settings const& settings, projected_layout layout, kept_share kept,
                std::unique_ptr<schedule_in_use<Storage>> schedule, std::unique_ptr<rule_in_use<Storage>> rule, Storage storage,
                std::unique_ptr<backend_in_use<Storage>> backend, options chosen)
      : engine(std::move(schedule), std::move(rule), storage, std::move(backend), parameter_layout(layout.inner),
               for_coordinates(std::move(chosen), layout.whole)),
        settings_(settings),
        layout_(std::move(layout)),
        kept_(std::move(kept)),
        storage_(std::move(storage)) {
    if (engine::chosen().average_decay != 0)
      throw usage_error(engine::place(), text("options::average_decay is not there for galore"),
                        text("Leave it 0: coordinates of different bases have no mean"));
    description lines;
    lines.add_all("galore.", settings_);
    lines_ = lines.lines();
  }

  [[nodiscard]] parameter_layout const& layout() const noexcept override { return layout_.whole; }
  [[nodiscard]] parameter_layout const& kept_layout() const noexcept override { return layout_.inner; }
  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table = engine::memory();
    table.parameters += own_bytes(0);
    table.gradients += own_bytes(1);
    return table;
  }

  void begin() override {
    engine::begin();
    engine::together([&] { agree(queue(), backend(), lines_, engine::place()); });
    clear_gradients();
  }
  void initialize(std::span<real const> values) override { engine::initialize(with_coordinates(values)); }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    std::vector<real> const behind = with_coordinates({});
    engine::initialize_from([&](std::size_t offset, std::size_t count, std::byte* to) {
      const std::size_t size = layout_.whole.size(), n = offset < size ? std::min(count, size - offset) : 0;
      if (n != 0) read(offset, n, to);
      std::memcpy(to + n * sizeof(real), behind.data() + offset + n, (count - n) * sizeof(real));
    });
  }
  /// The trainer's arrays, and this level's beside them: to the engine below tensors lie apart.
  void adopt(std::span<real> parameters, std::span<real> gradients, bool begins) override {
    std::vector<tensor_memory<real, real>> each;
    for (std::size_t k = 0; k < layout().tensor_count(); ++k)
      each.push_back({parameters.data() + layout()[k].offset, gradients.data() + layout()[k].offset});
    parameters_ = parameters;
    gradients_ = gradients;
    galore_engine::adopt(std::span(std::as_const(each)), begins);
  }
  void adopt(lent_tensors of_trainer, bool begins) override {
    std::vector<tensor_memory<real, real>> all(of_trainer.begin(), of_trainer.end());
    adopted_ = true;
    for (std::size_t k = 0; k < 2; ++k) own_[k] = storage_.allocate(own_size() * sizeof(real), own_place + k);
    std::memset(own_[1].template as<real>(), 0, own_size() * sizeof(real));
    for (std::size_t k = layout().tensor_count(); k < layout_.inner.tensor_count(); ++k) {
      const std::size_t at = layout_.inner[k].offset - layout().size();
      all.push_back({own_[0].template as<real>() + at, own_[1].template as<real>() + at});
    }
    engine::adopt(all, false);
    if (!begins) return;
    std::vector<real> values(layout().size());
    for (std::size_t k = 0; k < layout().tensor_count(); ++k)
      std::copy_n(of_trainer[k].parameters, layout()[k].size, values.data() + layout()[k].offset);
    galore_engine::initialize(values);
  }
  void set_parameters(std::span<real const> values) override {
    std::vector<real> all = with_coordinates(values);
    for (projected_matrix const& m : layout_.matrices) {
      for (const std::size_t k : {m.coordinates, m.basis})
        std::copy_n(parameters_of(k), layout_.inner[k].size, all.data() + layout_.inner[k].offset);
    }
    engine::set_parameters(all);
  }

  [[nodiscard]] std::span<real const> parameters() const noexcept override {
    return adopted_ ? std::span<real const>(parameters_) : engine::parameters().first(layout().size());
  }
  [[nodiscard]] std::span<real> gradients() const noexcept override {
    return adopted_ ? gradients_ : engine::gradients().first(layout().size());
  }
  /// Of tensors: those of the coordinates stand for their matrices'.
  [[nodiscard]] std::span<double const> norms() const noexcept override {
    std::span<double const> const all = engine::norms();
    if (engine::chosen().norms != norm_detail::tensors) return all.first(std::min(all.size(), layout().groups().size()));
    norms_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(layout().tensor_count()));
    for (projected_matrix const& m : layout_.matrices) norms_[m.tensor] = all[m.coordinates];
    return norms_;
  }

  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    accumulated_ = true;
    return engine::loop().accumulated(weight, loss_sum, between{*this});
  }
  void finish(unfinished rest) override {
    engine::finish(rest, between{*this});
    clear_gradients();
    show_committed();
  }
  void gather(std::span<real> out, weights which) override {
    std::vector<real> all(layout_.inner.size());
    engine::gather(all, which);
    const training_position now = engine::loop().committed();
    const bool more = now.steps != engine::steps();
    const double rate = more ? engine::chosen().rate_at({engine::samples(), engine::steps()}, engine::place()) : 1;
    for (projected_matrix const& m : layout_.matrices) {
      const auto at = [&](std::size_t k) { return all.data() + layout_.inner[k].offset; };
      matrix_in_basis<real>(m, at(m.basis))
          .show(at(m.coordinates), more ? kept_(group_of(m), rate) : 1, 1, settings_.scale, at(m.tensor));
    }
    std::copy_n(all.data(), out.size(), out.data());
  }
  void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights which) override {
    std::vector<real> all(layout().size());
    gather(all, which);
    take(0, all.size(), reinterpret_cast<std::byte const*>(all.data()));
  }

  // States: those of the engine below, with W, P and the coordinates that W shows as what is frozen.

  [[nodiscard]] std::vector<char> construction() const override {
    std::vector<char> all = engine::construction();
    all.insert(all.end(), lines_.begin(), lines_.end());
    return all;
  }
  [[nodiscard]] std::uint64_t frozen_values() const noexcept override { return 0; }
  std::uint64_t resume(resumption how) override {
    if (how != resumption::exact)
      throw usage_error(engine::place(), text("galore: the checkpoint is of another schedule, or of other groups"),
                        text("Restore it as it was; save_model, and initialize from its weights, begins with new bases"));
    engine::take_up(how);
    if (!engine::loop().in_flight()) show_committed();  // as at the end of `finish`, behind the copy
    engine::loop().land_if_waiting(between{*this});
    const std::uint64_t digest = engine::world_digest();
    engine::taken_up();
    return digest;
  }

 private:
  struct between {
    galore_engine& of;
    void operator()(round_report const& report) const { of.landed(report); }
    [[nodiscard]] std::uint64_t starting(bool begins_step) const { return of.starting(begins_step); }
  };

  /// What is frozen is written between rounds only: it may be compared, unless the trainer has frozen tensors, too.
  static options for_coordinates(options chosen, parameter_layout const& whole) {
    chosen.stable_addresses = true;
    chosen.compare_frozen = chosen.compare_frozen || whole.trainable_size() == whole.size();
    return chosen;
  }
  [[nodiscard]] auto& queue() noexcept { return engine::tasks().queue(); }
  [[nodiscard]] auto& backend() noexcept { return engine::tasks().backend(); }
  [[nodiscard]] std::size_t own_size() const noexcept { return layout_.inner.size() - layout_.whole.size(); }
  [[nodiscard]] std::size_t own_bytes(std::size_t k) const noexcept {
    return adopted_ ? Storage::allocation_size(own_size() * sizeof(real), own_place + k) : 0;
  }
  [[nodiscard]] update_group const& group_of(projected_matrix const& m) const noexcept { return layout().groups()[m.group]; }
  /// Nobody but this level writes to them.
  [[nodiscard]] real* parameters_of(std::size_t tensor) const noexcept {
    return const_cast<real*>(engine::tensor(tensor).parameters.data());
  }
  [[nodiscard]] real* gradients_of(std::size_t tensor) const noexcept { return engine::tensor(tensor).gradients.data(); }
  [[nodiscard]] matrix_in_basis<real> in_basis(projected_matrix const& m) const noexcept { return {m, parameters_of(m.basis)}; }

  /// The trainer's, and coordinates of 0 in no basis.
  [[nodiscard]] std::vector<real> with_coordinates(std::span<real const> values) const {
    std::vector<real> all(layout_.inner.size());
    std::copy(values.begin(), values.end(), all.begin());
    for (projected_matrix const& m : layout_.matrices)
      matrix_in_basis<real>(m, all.data() + layout_.inner[m.basis].offset).begin();
    return all;
  }

  /// W of every matrix becomes that of the coordinates in use, which are committed.
  void show_committed() const {
    for (projected_matrix const& m : layout_.matrices)
      in_basis(m).show(parameters_of(m.coordinates), 1, 1, settings_.scale, parameters_of(m.tensor));
  }
  void landed(round_report const& report) {
    const bool applied = engine::tasks().numbers().apply, commit = commits(report.plan);
    const bool predicts = applied && report.plan.parameters == update::commit_and_predict;
    const double next = predicts ? engine::chosen().rate_at({engine::samples(), engine::steps()}, engine::place()) : 1;
    for (projected_matrix const& m : layout_.matrices) {
      const double once = applied ? kept_(group_of(m), report.learning_rate_scale) : 1;
      const double twice = predicts ? kept_(group_of(m), next) : 1;
      in_basis(m).show(parameters_of(m.coordinates), once * twice, commit ? twice : once, settings_.scale,
                       parameters_of(m.tensor));
    }
  }
  std::uint64_t starting(bool begins_step) {
    const std::uint64_t before = sent();
    if (begins_step) renew(engine::steps() % settings_.every == 0);
    if (std::exchange(accumulated_, false)) {
      for (projected_matrix const& m : layout_.matrices) in_basis(m).project(gradients_of(m.tensor), gradients_of(m.coordinates));
      clear_gradients();
    }
    return sent() - before;
  }
  void clear_gradients() const {
    for (projected_matrix const& m : layout_.matrices) std::fill_n(gradients_of(m.tensor), m.rows * m.columns, real(0));
  }
  [[nodiscard]] std::uint64_t sent() noexcept {
    return backend().traits.counts_bytes ? backend().bytes_sent().all : engine::tasks().view().ring_bytes;
  }

  /// New bases from the sum of all ranks' gradients: of all matrices, or of those that have none yet. A matrix has an
  /// owner, who alone looks for its basis, so that the ranks share that work, and sends it: so all have the same bits,
  /// whatever their processors are. Gradients that are not finite change nothing; one that is 0 on all ranks leaves its
  /// matrix as it is.
  void renew(bool all) {
    std::vector<std::size_t> due;
    for (std::size_t k = 0; k < layout_.matrices.size(); ++k) {
      if (all || !in_basis(layout_.matrices[k]).is_there()) due.push_back(k);
    }
    if (due.empty()) return;
    queue().place = engine::loop().place_in("new bases");
    std::vector<double> found(1 + due.size(), 0.0);  // what is not finite; whose gradient is not 0
    for (std::size_t k = 0; k < layout().tensor_count(); ++k) {
      const std::size_t size = layout()[k].size;
      if (size == 0 || layout().groups()[layout()[k].group].frozen) continue;
      if (!elementwise::all_finite(static_cast<real const*>(gradients_of(k)), size)) found[0] = 1;
    }
    for (std::size_t n = 0; n < due.size() && accumulated_; ++n) {
      projected_matrix const& m = layout_.matrices[due[n]];
      real const* const from = gradients_of(m.tensor);
      found[1 + n] = std::any_of(from, from + m.rows * m.columns, [](real x) { return x != 0; }) ? 1 : 0;
    }
    acco::sum_over_ranks(engine::tasks(), std::span<double>(found));
    if (found[0] != 0) return;
    std::size_t count = 0;
    for (std::size_t n = 0; n < due.size(); ++n) {
      if (found[1 + n] != 0) due[count++] = due[n];
    }
    due.resize(count);
    if (due.empty()) return;
    std::vector<std::vector<real>> mine(due.size());
    bool finite = true;
    for (std::size_t k = 0; k < due.size(); ++k)
      finite = sum(layout_.matrices[due[k]], is_mine(due[k]) ? &mine[k] : nullptr) && finite;
    if (!finite) return;
    engine::loop().masters_changed();  // a prediction, or what a code has lost, is taken back in the basis of before
    show_committed();
    for (std::size_t k = 0; k < due.size(); ++k) {
      if (is_mine(due[k])) in_basis(layout_.matrices[due[k]]).find(mine[k].data(), settings_.iterations, engine::steps());
    }
    for (const std::size_t k : due) {
      projected_matrix const& m = layout_.matrices[k];
      const std::span<real> basis(parameters_of(m.basis), m.of_basis());
      broadcast_and_wait(queue(), backend(), basis, owner(k));
      engine::tasks().view().sends(collective::broadcast, basis.size_bytes());
    }
  }
  [[nodiscard]] int owner(std::size_t matrix) noexcept {
    return static_cast<int>(matrix % static_cast<std::size_t>(backend().size()));
  }
  [[nodiscard]] bool is_mine(std::size_t matrix) noexcept { return owner(matrix) == backend().rank(); }
  /// The sum of all ranks' gradients of a matrix, to `whole` where that is wanted; whether it is finite. Chunk by
  /// chunk.
  bool sum(projected_matrix const& m, std::vector<real>* whole) {
    const auto ranks = static_cast<std::size_t>(backend().size());
    const std::size_t size = m.rows * m.columns, share = std::min((size + ranks - 1) / ranks, std::size_t{1} << 16U);
    std::vector<real> leaving(share * ranks), part(share), arriving(share * ranks);
    bool finite = true;
    for (std::size_t first = 0; first < size; first += leaving.size()) {
      const std::size_t n = std::min(leaving.size(), size - first);
      std::fill(std::copy_n(gradients_of(m.tensor) + first, n, leaving.begin()), leaving.end(), real(0));
      backend().reduce_scatter(queue(), partial<real const>(leaving), sharded<real>(part), false);
      backend().all_gather(queue(), sharded<real const>(part), replicated<real>(arriving));
      queue().wait();
      engine::tasks().view().sends(collective::reduce_scatter, leaving.size() * sizeof(real));
      engine::tasks().view().sends(collective::all_gather, leaving.size() * sizeof(real));
      finite = elementwise::all_finite(arriving.data(), n) && finite;
      if (whole != nullptr) whole->insert(whole->end(), arriving.begin(), arriving.begin() + static_cast<std::ptrdiff_t>(n));
    }
    return finite;
  }

  static constexpr std::size_t own_place = 6;  // in the cache (stagger.hpp)

  projection_settings settings_;
  projected_layout layout_;
  kept_share kept_;
  Storage storage_;
  std::string lines_;
  bool adopted_ = false, accumulated_ = false;  // the latter: since gradients left last
  std::span<real> parameters_, gradients_;      // the trainer's own arrays; empty where its tensors lie apart
  typename Storage::buffer own_[2];             // where they do: coordinates and bases, and their gradients
  mutable std::vector<double> norms_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
