// SPDX-License-Identifier: Apache-2.0
// Ranks as processes connected by Gloo over TCP (component `gloo`). Collectives are acco's own
// (message_collectives.hpp) over Gloo's point-to-point buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <gloo/context.h>

#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/error.hpp"
#include "acco/network/connections.hpp"
#include "acco/network/gloo_pool.hpp"
#include "acco/network/gloo_start.hpp"
#include "acco/network/gloo_transport.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/message_backend.hpp"
#include "acco/network/print_end.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_tcp.hpp"
#include "acco/network/those_left.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A handle on this process as a rank of a group connected by Gloo; cheap to copy. Bit-identical with every other
/// backend.
class ACCO_VISIBLE gloo_backend : public message_backend<gloo_transport> {
 public:
  static constexpr backend_traits traits = [] {
    backend_traits with_more = message_backend::traits;
    with_more.splits = true;
    with_more.names_progress = true;
    return with_more;
  }();
  /// Another channel over the same connections: each optimizer takes one. 64 at a time; from the 65th on it waits until
  /// all ranks have come, at most the backend's deadline.
  [[nodiscard]] gloo_backend duplicate() const { return {another_over(*this), connections_}; }

  /// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank, over connections of its
  /// own. Every rank of this handle calls it; blocks at most `deadline` seconds for any of them. Its errors of the
  /// phase `split` name ranks of this handle; all others, and later ones, those of the new world. Where it fails this
  /// handle has left on every rank; parts that are connected go on, those that are not yet fail, too.
  [[nodiscard]] gloo_backend split(int color, int key = 0, double deadline = 600) const {
    const split_result mine = agree_on_split(*this, color, key, deadline);
    auto& all = collectives().shared();
    // this world knows of a member that is lost while Gloo waits for it
    const auto look_at = [&](std::span<int const> who) {
      all.require({rank(), -1, "split"}, "split", [&](int peer) { return std::find(who.begin(), who.end(), peer) != who.end(); });
    };
    const auto look = [&](int first) { look_at(std::span(mine.members).subspan(static_cast<std::size_t>(std::max(first, 0)))); };
    try {
      const gloo_start::meeting_in_world<gloo_backend> meeting{*this, mine, deadline};
      auto device = all.transport().device();
      return pooled(gloo_start::meshed(
                        {mine.rank, mine.size()}, [&] { return device; }, device->str(), deadline, meeting, look),
                    {.piece_bytes = collectives().chosen_piece_bytes(),
                     .deadline = deadline,
                     .connections = connections_,
                     .checksums = has_checksums() ? checksums::always : checksums::none,
                     .sum = all.sum()},
                    deadline);
    } catch (peer_error const& e) {
      const int named = in_this_world(mine, e.peer());
      if (!all.left() && named >= 0) {
        gloo_start::look_for_a_second([&] {
          look_at(std::span(&named, 1));
          look(0);
        });
      }
      all.abort(of_part(e).c_str(), named);
      throw;
    } catch (error const& e) {
      all.abort(of_part(e).c_str(), in_this_world(mine, e.peer()));
      throw;
    } catch (std::exception const& e) {
      abort(e.what());
      throw;
    }
  }

  static constexpr std::size_t usual_piece = gloo_start::usual_piece;

  /// Over a context that is already connected (`connectFullMesh`); nobody else may use it while the handle lives. Its
  /// connections stay open behind it: end them when every rank has what it waits for.
  explicit gloo_backend(std::shared_ptr<gloo::Context> context, gloo_options const& chosen = {})
      : gloo_backend(std::make_shared<connections<gloo_transport>>(std::move(context)), chosen) {
    require_positive("gloo_options::deadline", chosen.deadline, {rank(), -1, "start-up"});
    if (chosen.checksums == checksums::always) collectives().shared().set_sum(required_message_sum(rank(), chosen.sum));
  }

  /// From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as launchers set them. Collective; blocks at most
  /// chosen.deadline.
  [[nodiscard]] static gloo_backend from_environment(gloo_options const& chosen = {}) {
    const launch_environment mine = launch_environment::read();
    rendezvous::tcp_rendezvous meeting(mine, rendezvous::start_of(chosen));
    return started(mine, chosen, meeting);
  }
  /// The same, for those who want the context only.
  [[nodiscard]] static std::shared_ptr<gloo::Context> context_from_environment(gloo_options const& chosen = {}) {
    const launch_environment mine = launch_environment::read();
    rendezvous::tcp_rendezvous meeting(mine, rendezvous::start_of(chosen));
    return connected(mine, chosen, meeting);
  }

  /// Through a directory that all ranks see; `run` names this run and is the same on all its ranks (e.g. the job's
  /// number).
  [[nodiscard]] static gloo_backend from_files(rank_of mine, std::filesystem::path const& directory, std::string const& run,
                                               gloo_options const& chosen = {}) {
    rendezvous::tcp_options how = rendezvous::start_of(chosen);
    how.run = run;
    rendezvous::tcp_rendezvous meeting(mine, directory, how);
    return started(mine, chosen, meeting);
  }

  /// The same, of those that are left of a world in which this was rank `before`: those that come, in their order
  /// (`rendezvous::those_left`). `run` was never used in this directory: the job's number, and that of the loss.
  [[nodiscard]] static gloo_backend from_those_left(rank_of before, std::filesystem::path const& directory,
                                                    std::string const& run, quorum const& enough = {},
                                                    gloo_options const& chosen = {}) {
    auto const left = rendezvous::those_left(before, directory, run, enough, chosen.deadline);
    const auto mine = static_cast<int>(std::find(left.begin(), left.end(), before.rank) - left.begin());
    return from_files({mine, static_cast<int>(left.size())}, directory, run, chosen);
  }

  /// from_environment, then function(gloo_backend); an exception is printed. Returns the exit code.
  template <class Function>
  static int run(Function&& function, gloo_options const& chosen = {}) {
    int rank = -1;
    try {
      gloo_backend world = from_environment(chosen);  // NOLINT(misc-const-correctness): it is moved from
      rank = world.rank();
      function(std::move(world));
      return 0;
    } catch (...) {
      print_end(rank);
      return 1;
    }
  }

  /// To each other rank.
  [[nodiscard]] std::size_t connections_a_rank() const noexcept {
    return collectives().shared().transport().connections_a_rank();
  }
  /// Whether messages carry them.
  [[nodiscard]] bool has_checksums() const noexcept { return collectives().shared().sum() != nullptr; }
  [[nodiscard]] char const* progress_policy() const noexcept { return "Gloo: its own thread"; }

 private:
  static int in_this_world(split_result const& part, int member) noexcept {
    return member < 0 || member >= part.size() ? -1 : part.members[static_cast<std::size_t>(member)];
  }
  static text of_part(error const& e) noexcept { return text("its part, whose ranks count from 0: ", e.what()); }
  static std::shared_ptr<addressed_context> connected(rank_of mine, gloo_options chosen, rendezvous::tcp_rendezvous& meeting) {
    const double whole = std::exchange(chosen.deadline, meeting.seconds_left());
    auto context = gloo_start::connected(mine, meeting.own_address(), chosen, meeting);
    context->setTimeout(gloo_start::milliseconds(whole));
    return context;
  }
  static gloo_backend started(rank_of mine, gloo_options const& chosen, rendezvous::tcp_rendezvous& meeting) {
    auto const context = connected(mine, chosen, meeting);
    return pooled(context, chosen, std::max(meeting.seconds_left(), 1.0));
  }
  static gloo_backend pooled(std::shared_ptr<addressed_context> const& context, gloo_options const& chosen, double deadline) {
    gloo_backend result(std::make_shared<connections<gloo_transport>>(context), chosen);
    auto& all = result.collectives().shared();
    all.transport().hang_up_at_end();
    all.set_sum(gloo_pool::widen(result, all, chosen, deadline));
    return result;
  }
  gloo_backend(std::shared_ptr<connections<gloo_transport>> const& all, gloo_options const& chosen)
      : message_backend(std::make_shared<message_collectives<gloo_transport>>(message_window::checked_piece(chosen.piece_bytes),
                                                                              usual_piece, all,
                                                                              chosen.deadline)),  // checksums: what all agree on
        connections_(chosen.connections) {}
  gloo_backend(message_backend other, int connections) : message_backend(std::move(other)), connections_(connections) {}

  int connections_;  // as chosen
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
