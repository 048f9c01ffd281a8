// SPDX-License-Identifier: Apache-2.0
// The update on a GPU: each rule's commit and predict beside a device-to-device copy that moves as many bytes, for one
// group and for 96 x 8 tensors of two groups in turn, of even and of odd sizes, in arrays that begin at a boundary and
// elsewhere; and sums of squares. One JSON object a line. `--sizes "20 24"`: powers of two; `--seconds S`: ends about
// then; `--only adamw`: a rule.
#include <exception>
#include <string>
#include <vector>

#include "arrays.hpp"

namespace {

using bench::arena, bench::arguments, bench::bench_of_kernels, bench::cutter, bench::figure;

/// How an update of so many elements is cut into tensors, and where its arrays begin.
struct cutting {
  char const* name;
  std::size_t tensors, shift;
  bool odd;
};
constexpr cutting one_group{"1", 1, 0, false}, many_groups{"96 x 8", 768, 0, false},
    many_odd_groups{"96 x 8, odd sizes", 768, 0, true}, one_shifted{"1, arrays from an odd element", 1, 1, true},
    many_shifted{"96 x 8, odd, from an odd element", 768, 1, true};

/// The blocks of tensors that belong to two groups in turn.
std::vector<acco::update_block> blocks_of(cutting how, std::size_t count) {
  std::vector<acco::update_block> blocks;
  const std::size_t usual = how.tensors == 1 ? count : how.odd ? count / how.tensors | 1U : count / how.tensors / 16 * 16;
  for (std::size_t tensor = 0, at = 0; at < count; ++tensor) {
    const std::size_t end = tensor + 1 >= how.tensors ? count : std::min(count, at + std::max<std::size_t>(usual, 1));
    for (; at < end; at += blocks.back().count) {
      const auto length = static_cast<std::uint32_t>(std::min(acco::update_block::most, end - at));
      blocks.push_back({at, length, static_cast<std::uint32_t>(tensor % 2)});
    }
  }
  return blocks;
}
acco::cuda_numbers<acco::update_block> upload(acco::cuda_queue& queue, std::vector<acco::update_block> const& blocks) {
  acco::cuda_numbers<acco::update_block> there(acco::cuda_storage<float>{}, blocks.size());
  for (std::size_t k = 0; k < blocks.size(); ++k) there[k] = blocks[k];
  there.upload(queue);
  queue.wait();
  return there;
}

char const* name_of(acco::update kind) {
  return kind == acco::update::commit ? "commit" : kind == acco::update::predict ? "predict" : "commit_and_predict";
}

template <class Rule, acco::update kind, class Parameter>
void measure(bench_of_kernels& all, Rule const& rule, std::size_t count, cutting how) {
  using storage = acco::cuda_storage<Parameter>;
  count += how.odd ? 1 : 0;
  const auto cut = blocks_of(how, count);
  const auto blocks = upload(all.queue(), cut);
  acco::cuda_numbers<acco::rule_constants<Rule>> constants(storage{}, 2);
  acco::cuda_numbers<acco::region_update> decided(storage{}, 2);
  for (std::size_t region = 0; region < 2; ++region) {
    constants[region] = rule.prepare({.count = 10}, {});
    decided[region] = {1.0, true};
  }
  constants.upload(all.queue());
  decided.upload(all.queue());
  struct arrays {
    acco::update_table<Rule, float, float> table{};
    Parameter* out = nullptr;
  };
  const auto arrays_of = [&](std::byte* set) {
    cutter from(set);
    arrays mine;
    mine.table.master = from.take<float>(count, how.shift);
    for (float*& slot : mine.table.slots) slot = from.take<float>(count, how.shift);
    mine.table.gradient = from.take<float>(count, how.shift);
    mine.out = from.take<Parameter>(count, how.shift);
    mine.table.now = mine.table.next = constants.there();
    mine.table.decided = decided.there();
    mine.table.blocks = blocks.there();
    return mine;
  };
  constexpr std::size_t slots = Rule::slot_count;
  const std::size_t set_bytes =
      (2 + slots) * cutter::bytes_of<float>(count, how.shift) + cutter::bytes_of<Parameter>(count, how.shift);
  constexpr std::size_t reads = 8 + 4 * slots, writes = sizeof(Parameter) + (kind == acco::update::predict ? 0 : 4 + 4 * slots);
  figure row("update");
  row.with("rule", Rule::name).with("kind", name_of(kind)).with("type", bench::type_name<Parameter>()).with("groups", how.name);
  row.with("odd", how.odd).with("elements", count);
  all.measure(
      row, set_bytes, (reads + writes) * count,
      [&](std::byte* set) {
        const arrays mine = arrays_of(set);
        bench::launch(nullptr, count, bench::fill<float>{mine.table.master});
        bench::launch(nullptr, count, bench::fill<float>{const_cast<float*>(mine.table.gradient)});
        for (float* slot : mine.table.slots) bench::launch(nullptr, count, bench::set_all<float>{slot, 1e-4F});
      },
      [&](std::byte* set) {
        const arrays mine = arrays_of(set);
        storage::template apply<Rule, kind>(all.queue(), &mine.table, 0, cut.size(), mine.out);
      });
}

/// The sums of squares that a norm needs: of a slice, and by blocks where groups have norms of their own.
void measure_squares(bench_of_kernels& all, std::size_t count, cutting how) {
  using storage = acco::cuda_storage<float>;
  count += how.odd ? 1 : 0;
  const auto cut = blocks_of(how, count);
  const auto blocks = upload(all.queue(), cut);
  const auto results = storage{}.allocate(cut.size() * sizeof(double), 0);
  const std::size_t set_bytes = cutter::bytes_of<float>(count, how.shift);
  const auto prepare = [&](std::byte* set) {
    bench::launch(nullptr, count, bench::fill<float>{cutter(set).take<float>(count, how.shift)});
  };
  const auto row = [&](char const* what) {
    return figure("squares").with("work", what).with("groups", how.name).with("odd", how.odd).with("elements", count);
  };
  all.measure(row("squares_of_blocks"), set_bytes, 4 * count, prepare, [&](std::byte* set) {
    storage::squares_of_blocks(all.queue(), cutter(set).take<float>(count, how.shift), blocks.there(), 0, cut.size(),
                               results.as<double>());
  });
  if (how.tensors != 1) return;
  all.measure(row("sum_of_squares"), set_bytes, 4 * count, prepare, [&](std::byte* set) {
    storage::sum_of_squares(all.queue(), acco::sharded<float const>({cutter(set).take<float>(count, how.shift), count}),
                            results.as<double>());
  });
}

template <class Parameter>
void of_type(bench_of_kernels& all, std::size_t count, std::string const& only) {
  using acco::update;
  for (cutting const& how : {one_group, many_odd_groups, many_groups, one_shifted, many_shifted}) {
    if (only.empty() || only == "adamw") measure<acco::adamw, update::commit, Parameter>(all, acco::adamw{}, count, how);
  }
  if (only.empty() || only == "adamw") {
    for (cutting const& how : {one_group, many_odd_groups}) {
      measure<acco::adamw, update::predict, Parameter>(all, acco::adamw{}, count, how);
      measure<acco::adamw, update::commit_and_predict, Parameter>(all, acco::adamw{}, count, how);
    }
  }
  acco::for_each(acco::all_rules{}, [&]<class Rule>(Rule const& rule) {
    if (std::is_same_v<Rule, acco::adamw> || (!only.empty() && only != Rule::name)) return;
    measure<Rule, update::commit, Parameter>(all, rule, count, one_group);
  });
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen(count, words);
  if (bench::gpus() == 0) return 0;
  try {
    bench_of_kernels all(chosen, 29);  // adamw in floats moves 28 bytes an element
    const std::string only = chosen.text("--only", "");
    for (const std::size_t size : all.sizes()) {
      of_type<float>(all, size, only);
      of_type<acco::bfloat16>(all, size, only);
      if (!only.empty()) continue;
      for (cutting const& how : {one_group, many_odd_groups, one_shifted}) measure_squares(all, size, how);
    }
    all.tell_what_is_left();
  } catch (std::exception const& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  return 0;
}
