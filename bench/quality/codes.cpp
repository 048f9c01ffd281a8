// SPDX-License-Identifier: Apache-2.0
// What bytes cost: validation loss of a small GPT at equal samples, for every way to travel, all ranks as threads of
// this process. A row's rate is that of `--rates` which is best for the first seed; the other seeds train at it.
//
//   bench_quality_codes TEXT [--samples 12800] [--ranks 4,8] [--rates 1e-3,3e-3] [--seeds 1,2,3] [--steps 30]
//                       [--rows NAME] [--layers 2] [--width 64] [--results codes.txt] [--minutes 60]
//
// `--rows`: the first, and those whose name contains NAME; `--steps`: of local updates, from one exchange to the next.
// What has ended is kept in `--results`: a second call goes on there, and prints the table of all; bench/front/run.py
// draws it. After `--minutes` no further training begins: rows are left empty then, and the program ends with 1.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/galore.hpp>
#include <acco/outer.hpp>
#include <acco/rule/muon.hpp>
#include <acco/rule/rules.hpp>

#include "gpt.hpp"
#include "muon_layout.hpp"
#include "text.hpp"
#include "tuning.hpp"

namespace {

using toy_gpt::corpus;
using training = acco::any_optimizer<float>;

struct settings {
  std::size_t samples = 12800, batch = 4, layers = 2, width = 64;
  int ranks = 4;
  unsigned steps = 30;
  double rate = 0;
  std::uint64_t seed = 1;
};
struct outcome {
  double loss = 0, bytes = 0;  // of a parameter and step of two micro-batches, in units of (ranks - 1) / ranks
  double memory = 0;           // bytes a parameter, of the first rank
};
using maker = std::function<training(acco::threads_backend const&, acco::parameter_layout const&, acco::options const&)>;

/// `averaged`: the average is evaluated, not what is trained.
outcome train(settings const& s, corpus const& text, maker const& make, bool averaged) {
  toy_gpt::shape shape;
  shape.layers = s.layers;
  shape.width = s.width;
  outcome found;
  acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
    toy_gpt::gpt<float> model(shape);
    const auto samples = static_cast<double>(s.samples);
    training one = make(world, model.layout(),
                        {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = samples / 20, .total = samples}});
    one.initialize(model.initial(s.seed));
    toy_gpt::batch data;
    const std::size_t micro_batches = s.samples / s.batch / static_cast<std::size_t>(s.ranks);
    for (std::size_t t = 0; t < micro_batches; ++t) {
      text.draw(data, s.batch, s.seed, static_cast<std::uint64_t>(world.rank()), t);
      const double loss = model.add_gradients(data, one.parameters(), one.gradients());
      (void)one.accumulated(static_cast<double>(s.batch), loss);
    }
    one.finish();
    const auto sent = static_cast<double>(one.totals().bytes_sent);
    std::vector<float> shown(one.parameters().begin(), one.parameters().end());
    if (averaged) one.gather_average(shown);
    if (world.rank() != 0) return;
    constexpr std::size_t batches = 16, sequences = 32;
    for (std::size_t k = 0; k < batches; ++k) {
      text.draw_validation(data, sequences, k);
      found.loss += model.loss(data, shown) / (batches * sequences);
    }
    found.bytes = sent / static_cast<double>(model.layout().size() * micro_batches / 2) * s.ranks / (s.ranks - 1);
    found.memory = static_cast<double>(one.memory().total()) / static_cast<double>(model.layout().size());
  });
  return found;
}

/// `muon` in a name: it trains the matrices, and AdamW the rest.
struct row {
  std::string name;
  maker make;
  bool averaged = false;
};
template <class Schedule>
maker with(settings const& s, bool muon, Schedule const& schedule) {
  return [=](acco::threads_backend const& world, acco::parameter_layout const& layout, acco::options const& options) -> training {
    const acco::adamw rule{.learning_rate = s.rate};
    if (!muon) return acco::optimizer{schedule, rule, acco::host_storage<float>{}, world, layout, options};
    return acco::optimizer{schedule,
                           acco::rules{acco::muon{.learning_rate = s.rate}, rule},
                           acco::host_storage<float>{},
                           world,
                           toy_gpt::for_muon(layout),
                           options};
  };
}
template <class Code>
acco::with_error_feedback<Code> kept(Code code) {
  return {code, {}};
}
template <class Code>
acco::without_feedback<Code> plain(Code code) {
  return {code};
}
std::vector<row> rows(settings const& s) {
  using namespace acco;  // NOLINT(google-build-using-namespace): a table of its names
  std::vector<row> all;
  const auto add = [&](char const* name, auto schedule, bool muon = false) { all.push_back({name, with(s, muon, schedule)}); };
  constexpr fixed_pace two{.first = 2}, halves{.first = 1, .second = 1};
  const auto at_once = [&](char const* name, auto gradients, auto parameters, bool muon = false) {
    add(name, synchronous{.commit = coded{gradients, parameters}, .pace = two}, muon);
  };
  const auto hidden = [&](char const* name, auto estimate, auto commit, bool muon = false) {
    add(name, two_phase{.estimate = estimate, .commit = commit, .pace = halves}, muon);
  };
  const block_ternary ternary;
  const block_gauss4 gauss4;
  const block_gauss3 gauss3;
  const block_gauss2 gauss2;
  const block_int4<> int4;
  const block_int8<> int8;
  at_once("synchronous", full{}, full{});
  at_once("synchronous: bfloat16", bfloat16_wire{}, bfloat16_wire{});
  at_once("synchronous: int8, int4", int8, int4);
  at_once("synchronous: int4, int4", int4, int4);
  at_once("synchronous: gauss4, ternary", plain(gauss4), ternary);
  at_once("synchronous: gauss4, gauss3", plain(gauss4), gauss3);
  at_once("synchronous: gauss4, gauss2", plain(gauss4), gauss2);
  at_once("synchronous: gauss3, ternary", plain(gauss3), ternary);
  at_once("synchronous: rotated gauss3, ternary", plain(rotated<block_gauss3>{}), ternary);
  at_once("synchronous: gauss2 kept, ternary", kept(gauss2), ternary);
  at_once("synchronous: rotated gauss2 kept, ternary", kept(rotated<block_gauss2>{}), ternary);
  at_once("synchronous: stat2 kept, ternary", kept(block_stat2{}), ternary);
  at_once("synchronous: ternary kept, ternary", kept(ternary), ternary);
  at_once("synchronous: sign kept, ternary", kept(block_sign{}), ternary);
  at_once("synchronous: top 16 of 256 kept, ternary", kept(block_top<16>{}), ternary);
  at_once("synchronous: power_sgd 4 kept, ternary", kept(power_sgd{.rank = 4}), ternary);
  at_once("synchronous, muon", full{}, full{}, true);
  at_once("synchronous, muon: rotated gauss3, ternary", plain(rotated<block_gauss3>{}), ternary, true);
  add("delayed", delayed{.pace = two});
  hidden("two_phase", full{}, full{});
  hidden("two_phase: int4; full", int4, full{});
  hidden("two_phase: int4; int8, int4", int4, coded{int8, int4});
  hidden("two_phase: int4; gauss4, gauss3", int4, coded{plain(gauss4), gauss3});
  hidden("two_phase: own, gauss3; gauss4, gauss3", coded{own_slice{}, gauss3}, coded{plain(gauss4), gauss3});
  hidden("two_phase: own, gauss3; gauss4, ternary", coded{own_slice{}, gauss3}, coded{plain(gauss4), ternary});
  hidden("two_phase: own, ternary; int8, ternary", coded{own_slice{}, ternary}, coded{int8, ternary});
  hidden("two_phase: gauss2, gauss3; gauss4, gauss3", coded{gauss2, gauss3}, coded{plain(gauss4), gauss3});
  hidden("two_phase, muon: own, gauss3; gauss4, gauss3", coded{own_slice{}, gauss3}, coded{plain(gauss4), gauss3}, true);
  hidden("two_phase: power_sgd 4, int4; int8, int4", coded{power_sgd{.rank = 4}, int4}, coded{int8, int4});
  const auto in_bases = [&](char const* name, auto inner) {
    all.push_back(
        {name, [=](threads_backend const& world, parameter_layout const& layout, acco::options const& chosen) -> training {
           return optimizer{galore{.inner = inner, .rank = 16, .every = 50},
                            adamw{.learning_rate = s.rate},
                            host_storage<float>{},
                            world,
                            layout,
                            chosen};
         }});
  };
  const synchronous planned_codes{.commit = coded{kept(auto_encoding{.budget = 2, .every = 20}), ternary}, .pace = two};
  all.push_back({"synchronous: planned at twice the error of gauss4 kept, ternary",
                 [=](threads_backend const& world, parameter_layout const& layout, acco::options chosen) -> training {
                   chosen.bucket_elements = 8192;  // about as many as a matrix has
                   return optimizer{planned_codes, adamw{.learning_rate = s.rate}, host_storage<float>{}, world, layout, chosen};
                 }});
  in_bases("galore 16 of 64: synchronous", synchronous{.pace = two});
  in_bases("galore 16 of 64: two_phase: int4; int8, int4",
           two_phase{.estimate = int4, .commit = coded{int8, int4}, .pace = halves});
  const auto averaging = [&](char const* name, double decay, auto schedule) {
    all.push_back(
        {name,
         [=](threads_backend const& world, parameter_layout const& layout, acco::options const& chosen) -> training {
           return optimizer{
               schedule, gpa{adamw{.learning_rate = s.rate}, {.average_decay = decay}}, host_storage<float>{}, world, layout,
               chosen};
         },
         true});
  };
  const two_phase coded_steps{.estimate = int4, .commit = coded{plain(gauss4), gauss3}, .pace = halves};
  averaging("gpa 0.974: synchronous", 0.974, synchronous{.pace = two});
  averaging("gpa 0.9869: synchronous", 0.9869, synchronous{.pace = two});
  averaging("gpa 0.974: two_phase: int4; gauss4, gauss3", 0.974, coded_steps);
  averaging("gpa 0.9869: two_phase: int4; gauss4, gauss3", 0.9869, coded_steps);
  const auto one_worker = [&](char const* name, auto inner) {
    add(name, local_updates{.method = diloco, .inner = inner, .ranks_a_group = s.ranks, .steps = 8});
  };
  one_worker("outer Nesterov over one worker: synchronous", synchronous{.pace = two});
  one_worker("outer Nesterov over one worker: two_phase: int4; gauss4, gauss3", coded_steps);
  const auto local = [&](auto method, auto exchange) {
    return local_updates{.method = method, .inner = synchronous{.pace = two}, .steps = s.steps, .exchange = exchange};
  };
  add("local_sgd", local(local_sgd, full{}));
  const auto with_moments = [&](char const* name, slot_periods periods) {
    auto level = local(local_sgd, full{});
    level.slots_every = periods;
    add(name, level);
  };
  with_moments("local_sgd, moments with each exchange", {1, 1});
  with_moments("local_sgd, moments with each 3rd and 6th", {3, 6});
  add("local_sgd: int4", local(local_sgd, int4));
  add("local_sgd: sparse_exchange", local(local_sgd, sparse_exchange));
  const auto in_halves = [&](char const* name, auto method, auto exchange, bool muon = false) {
    auto level = local(method, exchange);
    level.fragments = 2;
    add(name, level, muon);
  };
  in_halves("local_sgd, halves a step late: int4", keeping<>{.delay = 1}, int4);
  in_halves("local_sgd, halves a step late: stat2", keeping<>{.delay = 1}, block_stat2{});
  in_halves("local_sgd, halves a step late, muon: int4", keeping<>{.delay = 1}, int4, true);
  in_halves("streaming_diloco: int4", streaming_diloco, int4);
  add("diloco", local(diloco, full{}));
  add("diloco: int4", local(diloco, int4));
  add("mu_loco", local(mu_loco, full{}));
  add("mu_loco: stat2", local(mu_loco, block_stat2{}));
  add("mu_loco, muon", local(mu_loco, full{}), true);
  add("mu_loco, muon: stat2", local(mu_loco, block_stat2{}), true);
  return all;
}

/// Runs that have ended, by what they were, in a file; and those that are still to be made while there is time.
class runs {
 public:
  runs(std::string const& file, corpus const& text, double minutes) : file_(file), text_(text) {
    until_ = std::chrono::steady_clock::now() + std::chrono::seconds(static_cast<long>(60 * minutes));
    if (!std::ofstream(file, std::ios::app)) throw std::runtime_error("cannot write " + file);
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line.substr(line.find('\t') + 1));
      outcome one;
      if (words >> one.loss >> one.bytes >> one.memory) done_[line.substr(0, line.find('\t'))] = one;
    }
  }
  struct no_time {};
  outcome one(settings const& s, row const& of) {
    std::ostringstream key;
    key << of.name << "; ranks " << s.ranks << ", samples " << s.samples << ", steps " << s.steps << ", rate " << s.rate
        << ", seed " << s.seed;
    if (s.layers != 2 || s.width != 64) key << ", layers " << s.layers << ", width " << s.width;
    auto found = done_.find(key.str());
    if (found == done_.end()) {
      if (std::chrono::steady_clock::now() > until_) throw no_time();
      found = done_.emplace(key.str(), train(s, text_, of.make, of.averaged)).first;
      std::ofstream(file_, std::ios::app) << key.str() << '\t' << found->second.loss << ' ' << found->second.bytes << ' '
                                          << found->second.memory << std::endl;
    }
    return found->second;
  }

 private:
  std::string file_;
  corpus const& text_;
  std::chrono::steady_clock::time_point until_;
  std::map<std::string, outcome> done_;
};

/// Prints the table of `s.ranks`. Returns how many of its rows are left for another call.
int print_table(settings s, toy_gpt::command_line const& given, runs& all) {
  auto const rates = given.numbers<double>("--rates");
  auto const seeds = given.numbers<std::uint64_t>("--seeds", -1);
  std::printf(
      "\nN = %d\n\n| | bytes a parameter and step | loss | over synchronous | seeds apart | rate "
      "|\n|---|---|---|---|---|---|\n",
      s.ranks);
  double first = 0;
  int left = 0;
  for (std::size_t k = 0; k < rows(s).size(); ++k) {
    std::string const name = rows(s)[k].name;
    if (k != 0 && name.find(given["--rows"]) == std::string::npos) continue;
    try {
      auto const now = toy_gpt::tune(rates, seeds, [&](double rate, std::uint64_t seed) {
        s.rate = rate;
        s.seed = seed;
        return all.one(s, rows(s)[k]);
      });
      const double loss = now.mean(&outcome::loss);
      if (k == 0) first = loss;
      char over[32] = "";  // synchronous may be one of those that are left
      if (first > 0) std::snprintf(over, sizeof over, "%+.2f %%", 100 * (loss / first - 1));
      std::printf("| %s | %.4f | %.4f | %s | %.4f | %g |\n", name.c_str(), now.mean(&outcome::bytes), loss, over, now.spread(),
                  now.rate);
    } catch (runs::no_time const&) {
      ++left;
      std::printf("| %s | | | | | |\n", name.c_str());
    }
    std::fflush(stdout);
  }
  return left;
}

constexpr char usage[] =
    "bench_quality_codes TEXT [--samples 12800] [--ranks 4,8] [--rates 1e-3,3e-3] [--seeds 1,2,3] [--steps 30] [--rows NAME] "
    "[--layers 2] [--width 64] [--results codes.txt] [--minutes 60]";

}  // namespace

int main(int count, char** words) {
  toy_gpt::use_one_thread_for_products();
  const toy_gpt::command_line given(count, words, usage,
                                    {{"--samples", "12800"},
                                     {"--ranks", "4,8"},
                                     {"--rates", "1e-3,3e-3"},
                                     {"--seeds", "1,2,3"},
                                     {"--steps", "30"},
                                     {"--rows", ""},
                                     {"--results", "codes.txt"},
                                     {"--minutes", "60"},
                                     {"--layers", "2"},
                                     {"--width", "64"}});
  settings s{.samples = given.number<std::size_t>("--samples"),
             .layers = given.number<std::size_t>("--layers"),
             .width = given.number<std::size_t>("--width"),
             .steps = given.number<unsigned>("--steps")};
  const auto minutes = given.number<double>("--minutes", -1);
  auto const worlds = given.numbers<int>("--ranks", 1);
  (void)given.numbers<double>("--rates");  // what cannot be meant is told before anything is trained
  (void)given.numbers<std::uint64_t>("--seeds", -1);
  try {
    const corpus text(toy_gpt::read_file(given.text()), toy_gpt::shape{}.context);
    runs all(given["--results"], text, minutes);
    int left = 0;
    for (const int ranks : worlds) {
      s.ranks = ranks;
      left += print_table(s, given, all);
    }
    if (left == 0) return 0;
    std::printf("\n%d row%s left: call it again\n", left, left == 1 ? " is" : "s are");
  } catch (std::exception const& e) {
    std::fprintf(stderr, "bench_quality_codes: %s\n", e.what());
  }
  return 1;
}
