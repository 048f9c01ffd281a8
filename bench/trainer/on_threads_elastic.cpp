// SPDX-License-Identifier: Apache-2.0
// Elastic scheduling: the tensors of the first half of the parameters are updated at once, the others a step late, by
// two optimizers in the trainer's own arrays.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#ifdef TOY_GPT_CHECKPOINTS
#include <acco/checkpoint.hpp>
#endif

#include "host_model.hpp"
#include "matrix.hpp"
#include "on_threads.hpp"
#include "train.hpp"

namespace toy_gpt {
namespace {

/// Some tensors of a layout, with its groups.
acco::parameter_layout part_of(acco::parameter_layout const& of, std::size_t from, std::size_t to) {
  acco::parameter_layout part;
  for (std::size_t g = 1; g < of.groups().size(); ++g) part.add_group(of.groups()[g]);
  for (std::size_t k = from; k < to; ++k) part.add(of[k].name, of[k].shape, of[k].group);
  return part;
}
/// How many tensors have the first half of the parameters.
std::size_t first_half(acco::parameter_layout const& of) {
  std::size_t tensors = 0;
  while (of[tensors].offset + of[tensors].size <= of.size() / 2) ++tensors;
  return tensors;
}

/// What train_rank uses of an optimizer.
class elastic_training {
 public:
  elastic_training(settings const& s, threads_link const& world, acco::parameter_layout const& layout,
                   acco::options const& options)
      : parameters_(layout.size()),
        gradients_(layout.size(), 0.0F),
        tensors_(first_half(layout)),
        size_(layout[tensors_].offset),
        now_(acco::synchronous{.pace = acco::fixed_pace{.first = s.first}}, tuned(acco::adamw{}, s), {}, world,
             part_of(layout, 0, tensors_), options),
        late_(acco::delayed{.pace = acco::fixed_pace{.first = s.first}}, tuned(acco::adamw{}, s), {}, world,
              part_of(layout, tensors_, layout.tensor_count()), options) {}

  void initialize(std::span<float const> values) {
    std::copy(values.begin(), values.end(), parameters_.begin());
    now_.adopt(std::span(parameters_).first(size_), std::span(gradients_).first(size_));
    late_.adopt(std::span(parameters_).subspan(size_), std::span(gradients_).subspan(size_));
    adopted_ = true;
  }
  [[nodiscard]] std::span<float const> parameters() const { return parameters_; }
  [[nodiscard]] std::span<float> gradients() { return gradients_; }
  std::optional<acco::round_report> accumulated(double weight, double loss_sum) {
    auto report = now_.accumulated(weight, loss_sum);  // first: it is waited for, and has the link to itself
    const auto behind = late_.accumulated(weight, loss_sum);
    if (report && behind) {
      report->bytes_sent += behind->bytes_sent;
      report->communication_seconds += behind->communication_seconds;
      report->exposed_seconds += behind->exposed_seconds;
    }
    return report;
  }
  void gather_committed(std::span<float> out) {
    now_.gather_committed(out.first(size_));
    late_.gather_committed(out.subspan(size_));
  }
  void finish() {
    late_.finish();
    now_.finish();
  }
  void poll() {
    now_.poll();
    late_.poll();
  }
  void sum_over_ranks(std::span<double> numbers) { now_.sum_over_ranks(numbers); }
  [[nodiscard]] double samples() const { return now_.samples(); }
  [[nodiscard]] std::uint64_t steps() const { return now_.steps(); }
  [[nodiscard]] acco::round_totals totals() const {
    acco::round_totals both = now_.totals();
    acco::round_totals const& late = late_.totals();
    both.bytes_sent += late.bytes_sent;
    both.communication_seconds += late.communication_seconds;
    both.exposed_seconds += late.exposed_seconds;
    return both;
  }
  [[nodiscard]] acco::memory_table memory() const {
    acco::memory_table all = now_.memory();
    const acco::memory_table late = late_.memory();
    all.parameters += late.parameters;
    all.gradients += late.gradients;
    all.in_flight += late.in_flight;
    all.masters += late.masters;
    all.slots += late.slots;
    all.reduced += late.reduced;
    all.parameters += adopted_ ? parameters_.size() * sizeof(float) : 0;
    all.gradients += adopted_ ? gradients_.size() * sizeof(float) : 0;
    return all;
  }
#ifdef TOY_GPT_CHECKPOINTS
  acco::restored restore(std::string_view) { throw std::logic_error("two optimizers: each would have a folder of its own"); }
  template <class Position>
  void save(std::string_view, Position const&) {
    throw std::logic_error("two optimizers: each would have a folder of its own");
  }
#endif
  [[nodiscard]] acco::save_outcome const* saved() const { return nullptr; }

 private:
  template <class Schedule>
  using training = acco::optimizer<Schedule, acco::adamw, acco::host_storage<float>, threads_link>;

  std::vector<float> parameters_, gradients_;
  std::size_t tensors_, size_;
  bool adopted_ = false;
  training<acco::synchronous<>> now_;
  training<acco::delayed<>> late_;
};

}  // namespace

void train_elastic(threads_link const& world, job& one, summary& result) {
  use_one_thread_for_products();
  flush_subnormal_numbers();
  host_model<float> model(one.chosen);
  elastic_training training(one.chosen, world, model.layout(), options_of(one.chosen));
  train_rank(one, world.rank(), model, training, result);
}

}  // namespace toy_gpt
