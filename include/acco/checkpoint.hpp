// SPDX-License-Identifier: Apache-2.0
// Checkpoints: `any_optimizer::save` and `restore` work where this header is included. Component acco::checkpoint, which needs
// nlohmann's JSON and xxHash. docs/checkpoints.md has the format and what is guaranteed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "acco/any_optimizer.hpp"
#include "acco/checkpoint/candidates.hpp"
#include "acco/checkpoint/difference.hpp"
#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/model_file.hpp"
#include "acco/checkpoint/model_writer.hpp"
#include "acco/checkpoint/plan.hpp"
#include "acco/checkpoint/reader.hpp"
#include "acco/checkpoint/regrouped.hpp"
#include "acco/checkpoint/restored.hpp"  // IWYU pragma: export
#include "acco/checkpoint/writer.hpp"
#include "acco/error.hpp"
#include "acco/options.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// The calls behind `any_optimizer::save`, `restore`, `save_model`, and `initialize` from a model file.
template <class Optimizer>
struct checkpoints_need_acco_checkpoint_hpp {
  using engine = training_engine<typename Optimizer::parameter_type, typename Optimizer::gradient_type>;

  template <class Position>
  static void save(Optimizer& training, std::string_view run, Position&& position) {
    engine& on = *training.engine_;
    std::string folder;
    try {
      folder = checkpoints::plain_path(run);
    } catch (std::filesystem::filesystem_error const& e) {
      throw usage_error(on.place(), text("save: '", run, "' is no folder's name: ", std::string_view(e.what())),
                        text("Give the folder of a run: it is made where it is not there"));
    }
    if (on.keeper() == nullptr) attach(on, "", {}, 0);
    std::function<std::vector<std::byte>()> asked;
    if constexpr (!std::is_same_v<std::remove_cvref_t<Position>, nothing_of_the_trainer>)
      asked = [ask = std::forward<Position>(position)]() mutable { return bytes_of(ask()); };
    static_cast<checkpoints::writer&>(*on.keeper()).ask(std::move(folder), std::move(asked));
  }

  /// The problem, on every rank; or nothing.
  static std::string save_model(engine& on, std::string_view path, weights which) {
    std::unique_ptr<model_writer> file;
    std::string problem;
    const auto tried = [&](auto&& action) {
      try {
        if (on.place().rank == 0 && problem.empty()) action();
      } catch (std::exception const& e) {
        problem = checkpoints::words_of(e);
        file.reset();
      }
    };
    tried([&] {
      std::vector<tensor_to_write> tensors;
      for (std::size_t k = 0; k < on.layout().tensor_count(); ++k) {
        auto const each = on.layout()[k];
        tensors.push_back({std::string(each.name), {each.shape.begin(), each.shape.end()}, on.shape().master});
      }
      std::vector<std::pair<std::string, std::string>> const about{
          {"format", "pt"},
          {"step", std::to_string(on.steps())},
          {"weights", which == weights::average ? "average" : "committed"}};
      file = std::make_unique<model_writer>(std::string(path), tensors, about);
    });
    const auto take = [&](std::size_t, std::size_t count, std::byte const* from) {
      tried([&] { file->append({from, count * size_of(on.shape().master)}); });
    };
    on.gather_masters(take, which);
    tried([&] { file->commit(); });
    share(on, problem, 0);
    return problem;
  }
  /// The names of the tensors in the file that the layout has not.
  static std::vector<std::string> initialize(engine& on, model_file const& from) {
    auto const& layout = on.layout();
    std::map<std::string, int, std::less<>> known;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const each = layout[k];
      model_tensor const* const found = from.find(each.name);
      known[std::string(each.name)] = 1;
      const auto extents = [](auto const& shape) {
        std::string words = "[";
        for (auto const extent : shape) words += (words.size() == 1 ? "" : ", ") + std::to_string(extent);
        return words + "]";
      };
      if (found == nullptr || !std::ranges::equal(found->shape, each.shape)) {
        throw checkpoint_error(on.place(),
                               found == nullptr ? text(from.path(), " has no tensor '", each.name, "', which the layout has")
                                                : text(from.path(), ": tensor '", each.name, "' has the shape ",
                                                       extents(found->shape), ", in the layout it has ", extents(each.shape)),
                               text("Name the layout's tensors as the file does, and give them its shapes"));
      }
    }
    on.initialize_from([&](std::size_t offset, std::size_t count, std::byte* to) {
      while (count != 0) {
        auto const tensor = layout.at_offset(offset);
        const std::size_t first = offset - tensor.offset, n = std::min(count, tensor.size - first);
        if (on.shape().master == element_type::float64) {
          from.read(tensor.name, first, std::span(static_cast<double*>(static_cast<void*>(to)), n));
        } else {
          from.read(tensor.name, first, std::span(static_cast<float*>(static_cast<void*>(to)), n));
        }
        offset += n;
        count -= n;
        to += n * size_of(on.shape().master);
      }
    });
    std::vector<std::string> others;
    for (model_tensor const& each : from.tensors()) {
      if (known.find(each.name) == known.end()) others.push_back(each.name);
    }
    return others;
  }

  template <class Changes>
  static restored restore(engine& on, std::string_view from, Changes const& wanted) {
    changes allowed = changes::none;  // NOLINT(misc-const-correctness): unless the caller says more
    if constexpr (std::is_same_v<Changes, changes>) allowed = wanted;
    const int rank = on.place().rank;
    restored found;
    checkpoints::candidates all(
        from, on.keeper() == nullptr ? "" : static_cast<checkpoints::writer const&>(*on.keeper()).number(),
        [&](checkpoints::manifest const& m) {
          bool ignored = false;
          if (difference(on, m, changes::none, ignored).empty()) return checkpoints::likeness::same;
          const bool may = allowed == changes::allowed && checkpoints::difference(on, m, allowed, ignored).empty();
          return may ? checkpoints::likeness::changed : checkpoints::likeness::other;
        });
    for (;;) {
      std::string problem, path, several;
      try {
        if (rank == 0) path = all.next(found.skipped);
      } catch (checkpoints::several_trainings const& e) {
        several = e.what();
      } catch (std::exception const& e) {
        problem = checkpoints::words_of(e);
      }
      share(on, path, 0);
      if (path.empty()) {
        share(on, several, 0);
        if (!several.empty())
          on.together([&] {
            throw checkpoint_error(on.place(),
                                   text(from, " has checkpoints of several trainings that this one may be: ", several),
                                   text("Give the path of one of these, and each training a folder of its own"));
          });
        if (problem.empty()) problem = found.skipped.empty() ? "there is none" : found.skipped.front();
        if (found.skipped.size() > 1)
          problem += "; and " + std::to_string(found.skipped.size() - 1) + " more that cannot be read";
        share(on, problem, 0);
        on.together([&] {
          throw checkpoint_error(on.place(), text("no whole checkpoint in ", from, ": ", problem),
                                 text("Give the folder of a run, or of one checkpoint; a run that begins calls initialize"));
        });
      }
      problem = try_one(on, path, allowed, found);
      if (problem.empty()) return found;
      if (rank == 0) found.skipped.push_back(problem);
    }
  }

 private:
  template <class Given>
  static std::vector<std::byte> bytes_of(Given const& given) {
    if constexpr (std::ranges::contiguous_range<Given const>) {
      static_assert(std::is_trivially_copyable_v<std::ranges::range_value_t<Given const>>,
                    "acco: save's position returns a trivially copyable value, or a contiguous range of them");
      const auto bytes = std::as_bytes(std::span(std::ranges::data(given), std::ranges::size(given)));
      return {bytes.begin(), bytes.end()};
    } else {
      static_assert(std::is_trivially_copyable_v<Given>,
                    "acco: save's position returns a trivially copyable value, or a contiguous range of them");
      std::vector<std::byte> bytes(sizeof(Given));
      std::memcpy(bytes.data(), &given, sizeof given);
      return bytes;
    }
  }
  static void attach(engine& on, std::string const& run, std::vector<std::string> from, std::uint64_t restarts) {
    demand_names(on.layout(), on.place());
    checkpoints::writer_setting setting{
        .layout = on.layout(),
        .construction = checkpoints::lines_of(on.construction()),
        .shape = on.shape(),
        .rank = on.place().rank,
        .ranks = on.ranks(),
        .keep = on.chosen().keep_checkpoints,
        .deadline = on.chosen().deadline,
        .run = run,
        .from = std::move(from),
        .restarts = restarts,
        .frozen =
            [&on](std::size_t tensor, std::vector<std::byte>& to) {
              const std::size_t at = to.size();
              to.resize(at + on.layout()[tensor].size * sizeof(typename Optimizer::parameter_type));
              on.copy_parameters(tensor, to.data() + at);
            },
        .frozen_values = [&on] { return on.frozen_values(); },
        .on = &checkpoints::calls_of_rank(on.place().rank)};
    on.attach(new checkpoints::writer(std::move(setting)));
  }
  /// Names that a safetensors file can have.
  static void demand_names(parameter_layout const& layout, error_place const& where) {
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      std::string_view const name = layout[k].name;
      const bool utf8 = nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore) ==
                        nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      if (utf8 && name != "__metadata__") continue;
      throw usage_error(where,
                        text("tensor ", k, " of the layout cannot be saved: its name ",
                             utf8 ? "is __metadata__, which safetensors files have for themselves" : "is not UTF-8"),
                        text("Give it another name in the layout"));
    }
  }
  /// Every rank gets the root's words. Collective.
  static void share(engine& on, std::string& words, int root) {
    std::uint64_t size = words.size();
    char length[sizeof size];
    std::memcpy(length, &size, sizeof size);
    on.broadcast(length, root);
    std::memcpy(&size, length, sizeof size);
    words.resize(size);
    on.broadcast(words, root);
  }
  /// The first rank's words that are not empty, on every rank. Collective.
  static std::string first_of(engine& on, std::string words) {
    const auto ranks = static_cast<std::size_t>(on.ranks());
    std::vector<double> has(ranks, 0.0);
    has[static_cast<std::size_t>(on.place().rank)] = words.empty() ? 0 : 1;
    on.sum_over_ranks(has);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (has[rank] == 0) continue;
      share(on, words, static_cast<int>(rank));
      return words;
    }
    return "";
  }

  static void load_regrouped(engine& on, checkpoints::reader& source, parameter_layout const& before) {
    using parameter = typename Optimizer::parameter_type;
    source.check_alone();
    const auto load = [&](auto master) {
      checkpoints::regrouped<decltype(master), parameter> as(source, on.shape(), before, on.layout());
      on.load(as);
    };
    on.shape().master == element_type::float64 ? load(double{}) : load(float{});
  }
  /// What is wrong with a checkpoint, on every rank; empty: it is this training's state now. Throws, on every rank, where it is
  /// another training's.
  static std::string try_one(engine& on, std::string const& path, changes allowed, restored& found) {
    const int rank = on.place().rank;
    checkpoints::manifest m;
    std::optional<checkpoints::reader> source;
    std::vector<double> sums;
    std::string problem, other;
    bool same_schedule = true, freezes_otherwise = false;
    parameter_layout before;
    std::vector<checkpoints::place_of_tensor> then, now;
    try {
      m = checkpoints::manifest_of(path);
      other = checkpoints::difference(on, m, allowed, same_schedule);
      if (other.empty()) {
        now = checkpoints::places_of(checkpoints::lines_of(on.construction()));
        then = checkpoints::places_of(m.construction);
        if (then.size() != now.size() || now.size() != on.layout().tensor_count())
          throw std::runtime_error(path + ": its construction lacks tensors");
        if (then != now) checkpoints::regroup(m.numbers, then);
        freezes_otherwise = !checkpoints::freezes_alike(then, now);
        if (freezes_otherwise) before = checkpoints::layout_of(then, on.layout());
        source.emplace(path, m, freezes_otherwise ? before : on.layout(), on.shares(), rank);
        const bool same_ranks = checkpoints::same_ranks(on, m);
        if (!same_ranks) source->forget_rank();
        found.trainers.clear();
        for (std::size_t k = 0; k < m.ranks.size(); ++k) found.trainers.push_back(source->trainer(k));
        found.trainer = same_ranks ? found.trainers[static_cast<std::size_t>(rank)] : std::vector<std::byte>();
        freezes_otherwise ? load_regrouped(on, *source, before) : on.load(*source);
        sums = source->to_sum();
      }
    } catch (usage_error const&) {  // no checkpoint's fault
      throw;
    } catch (std::exception const& e) {
      problem = checkpoints::words_of(e);
    }
    problem = first_of(on, problem);
    if (!problem.empty()) return problem;
    other = first_of(on, other);
    if (!other.empty()) {
      const bool may = allowed == changes::none && checkpoints::difference(on, m, changes::allowed, same_schedule).empty();
      on.together([&] {
        throw checkpoint_error(
            on.place(), text(path, " is another training's: ", other),
            may ? text("Construct the optimizer as it was, or pass acco::changes::allowed to restore where the change is meant")
                : text("Construct the optimizer as it was; weights alone come from its master.safetensors (initialize with a "
                       "model_file)"));
      });
    }
    if (!sums.empty()) on.sum_over_ranks(sums);
    try {
      if (source) source->check(sums);  // it is there where nothing has failed
    } catch (std::exception const& e) {
      problem = checkpoints::words_of(e);
    }
    problem = first_of(on, problem);
    if (!problem.empty()) return problem;
    found.digest = on.resume(same_schedule ? resumption::exact : resumption::at_rest);
    found.path = path;
    found.run = m.run;
    found.step = m.numbers.steps();
    found.samples = m.numbers.samples();
    found.ranks = static_cast<int>(m.ranks.size());
    bool ignored = false;
    const bool unchanged = allowed == changes::none || checkpoints::difference(on, m, changes::none, ignored).empty();
    found.exact = unchanged && checkpoints::same_ranks(on, m);
    level_numbers const* const level = source->level();
    if (run_numbers const& n = level != nullptr ? level->worker : m.numbers; n.completed && same_schedule) {
      // Where the computation waits for rounds: that of the cut itself.
      const bool landed = level != nullptr ? !level->shows : on.steps() != n.run.steps;
      found.last_weight = landed ? n.last.counts.weight : n.run.step_weight;
      const double sum = landed ? n.last.counts.loss_sum : n.run.step_loss_sum;
      found.last_loss = found.last_weight > 0 ? sum / found.last_weight : 0;
    }
    found.thawed.clear();
    found.per_rank_of = -1;
    for (std::size_t k = 0; k < now.size(); ++k) {
      if (then[k].per_rank && now[k].per_rank) found.per_rank_of = rank % found.ranks;
      if (then[k].frozen && !now[k].frozen) found.thawed.emplace_back(on.layout()[k].name);
    }
    if (found.digest != m.digest && !freezes_otherwise)  // which is of what is trained
      return path + ": its digest is " + checkpoints::hex(m.digest) + ", and what was read from it has " +
             checkpoints::hex(found.digest);
    // Another training than the one that was is another run: it deletes none of that one's.
    if (!unchanged) m.from.insert(m.from.begin(), m.run);
    if (on.can_be_saved()) attach(on, unchanged ? m.run : "", m.from, unchanged ? m.restarts + 1 : 0);
    return "";
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
