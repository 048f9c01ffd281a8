// SPDX-License-Identifier: Apache-2.0
// Checkpoints: `any_optimizer::save` and `restore` work where this header is included. Component acco::checkpoint,
// which needs nlohmann's JSON and xxHash. docs/checkpoints.md has the format and what is guaranteed.
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
#include "acco/stage/level_copy.hpp"
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
  static void attach(engine& on, std::string const& run, std::vector<std::string> const& from, std::uint64_t restarts) {
    require_names(on.kept_layout(), on.place());
    checkpoints::writer_setting setting{
        .layout = on.kept_layout(),
        .construction = checkpoints::lines_of(on.construction()),
        .shape = on.shape(),
        .rank = on.place().rank,
        .ranks = on.ranks(),
        .keep = on.chosen().keep_checkpoints,
        .deadline = on.chosen().deadline,
        .run = run,
        .from = from,
        .restarts = restarts,
        .frozen =
            [&on](std::size_t tensor, std::vector<std::byte>& to) {
              const std::size_t at = to.size();
              to.resize(at + on.kept_layout()[tensor].size * sizeof(typename Optimizer::parameter_type));
              on.copy_parameters(tensor, to.data() + at);
            },
        .frozen_values = [&on] { return on.frozen_values(); },
        .on = &checkpoints::calls_of_rank(on.place().rank)};
    on.attach(new checkpoints::writer(std::move(setting)));
  }
  /// Names that a safetensors file can have.
  static void require_names(parameter_layout const& layout, error_place const& where) {
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
      checkpoints::regrouped<decltype(master), parameter> as(source, on.shape(), before, on.kept_layout());
      on.load(as);
    };
    on.shape().master == element_type::float64 ? load(double{}) : load(float{});
  }
  /// A checkpoint that is being tried.
  struct attempt {
    checkpoints::manifest m;
    std::optional<checkpoints::reader> source;  ///< there where nothing has failed
    std::vector<double> sums;
    std::string other;  ///< why it is another training's
    bool same_schedule = true, freezes_otherwise = false;
    parameter_layout before;
    std::vector<checkpoints::place_of_tensor> then, now;
  };
  /// Reads what this rank needs of it; throws what is wrong with it.
  static void read(engine& on, std::string const& path, changes allowed, attempt& a, restored& found) {
    const int rank = on.place().rank;
    a.m = checkpoints::manifest_of(path);
    a.other = checkpoints::difference(on, a.m, allowed, a.same_schedule);
    if (!a.other.empty()) return;
    a.now = checkpoints::places_of(checkpoints::lines_of(on.construction()));
    a.then = checkpoints::places_of(a.m.construction);
    if (a.then.size() != a.now.size() || a.now.size() != on.kept_layout().tensor_count())
      throw std::runtime_error(path + ": its construction lacks tensors");
    if (a.then != a.now) checkpoints::regroup(a.m.numbers, a.then);
    a.freezes_otherwise = !checkpoints::freezes_alike(a.then, a.now);
    if (a.freezes_otherwise) a.before = checkpoints::layout_of(a.then, on.kept_layout());
    a.source.emplace(path, a.m, a.freezes_otherwise ? a.before : on.kept_layout(), on.shape(), on.shares(), rank);
    const bool same_ranks = checkpoints::same_ranks(on, a.m);
    if (!same_ranks) a.source->forget_rank();
    found.trainers.clear();
    for (std::size_t k = 0; k < a.m.ranks.size(); ++k) found.trainers.push_back(a.source->trainer(k));
    found.trainer = same_ranks ? found.trainers[static_cast<std::size_t>(rank)] : std::vector<std::byte>();
    a.freezes_otherwise ? load_regrouped(on, *a.source, a.before) : on.load(*a.source);
    a.sums = a.source->to_sum();
  }
  /// It is another training's: every rank throws that.
  [[noreturn]] static void refuse(engine& on, std::string const& path, changes allowed, attempt& a) {
    const bool may = allowed == changes::none && checkpoints::difference(on, a.m, changes::allowed, a.same_schedule).empty();
    on.together([&] {
      throw checkpoint_error(
          on.place(), text(path, " is another training's: ", a.other),
          may ? text("Construct the optimizer as it was, or pass acco::changes::allowed to restore where the change is meant")
              : text("Construct the optimizer as it was; weights alone come from its master.safetensors (initialize with a "
                     "model_file)"));
    });
    std::terminate();  // `together` has thrown
  }
  /// What the trainer is told of the state that this training has now.
  static void describe(engine& on, std::string const& path, attempt const& a, bool unchanged, restored& found) {
    found.path = path;
    found.run = a.m.run;
    found.step = a.m.numbers.steps();
    found.samples = a.m.numbers.samples();
    found.ranks = static_cast<int>(a.m.ranks.size());
    found.exact = unchanged && checkpoints::same_ranks(on, a.m);
    level_numbers const* const level = a.source ? a.source->level() : nullptr;
    if (run_numbers const& n = level != nullptr ? level->worker : a.m.numbers; n.completed && a.same_schedule) {
      // Where the computation waits for rounds: that of the cut itself.
      const bool landed = level != nullptr ? !level->shows : on.steps() != n.run.steps;
      found.last_weight = landed ? n.last.counts.weight : n.run.step_weight;
      const double sum = landed ? n.last.counts.loss_sum : n.run.step_loss_sum;
      found.last_loss = found.last_weight > 0 ? sum / found.last_weight : 0;
    }
    found.dropped = checkpoints::dropped(a.m.shape, on.shape());
    found.thawed.clear();
    found.per_rank_of = -1;
    for (std::size_t k = 0; k < a.now.size(); ++k) {
      if (a.then[k].per_rank && a.now[k].per_rank) found.per_rank_of = on.place().rank % found.ranks;
      if (a.then[k].frozen && !a.now[k].frozen) found.thawed.emplace_back(on.kept_layout()[k].name);
    }
  }
  /// Whether the digest is of the same arrays: of what is trained, what wires keep, and what each rank has of its own.
  static bool has_same_digest(engine& on, attempt const& a) {
    if (a.freezes_otherwise) return false;
    state_shape const &then = a.m.shape, &now = on.shape();
    if (a.source && a.source->level() != nullptr) return true;  // which is of the anchor
    for (std::size_t array = 0; array < now.owned(); ++array) {
      if (checkpoints::counterpart(now, array, then) != array || then.type(array) != now.type(array)) return false;
    }
    return then.owned() == now.owned() && (now.shards() == now.owned() || checkpoints::same_ranks(on, a.m));
  }
  /// What is wrong with a checkpoint, on every rank; empty: it is this training's state now. Throws, on every rank,
  /// where it is another training's.
  static std::string try_one(engine& on, std::string const& path, changes allowed, restored& found) {
    attempt a;
    std::string problem;
    const auto noting = [&](auto&& action) {
      try {
        action();
      } catch (usage_error const&) {  // no checkpoint's fault
        throw;
      } catch (std::exception const& e) {
        problem = checkpoints::words_of(e);
      }
      problem = first_of(on, problem);
    };
    noting([&] { read(on, path, allowed, a, found); });
    if (!problem.empty()) return problem;
    a.other = first_of(on, a.other);
    if (!a.other.empty()) refuse(on, path, allowed, a);
    if (!a.sums.empty()) on.sum_over_ranks(a.sums);
    noting([&] { a.source->check(a.sums); });
    if (!problem.empty()) return problem;
    found.digest = on.resume(a.same_schedule ? resumption::exact : resumption::at_rest);
    bool ignored = false;
    const bool unchanged = allowed == changes::none || checkpoints::difference(on, a.m, changes::none, ignored).empty();
    describe(on, path, a, unchanged, found);
    if (found.digest != a.m.digest && has_same_digest(on, a))
      return path + ": its digest is " + checkpoints::hex(a.m.digest) + ", and what was read from it has " +
             checkpoints::hex(found.digest);
    // Another training than the one that was is another run: it deletes none of that one's.
    if (!unchanged) a.m.from.insert(a.m.from.begin(), a.m.run);
    if (on.can_be_saved()) attach(on, unchanged ? a.m.run : "", a.m.from, unchanged ? a.m.restarts + 1 : 0);
    return "";
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
