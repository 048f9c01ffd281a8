// SPDX-License-Identifier: Apache-2.0
// import acco; what needs only the standard library, for compilers that know modules. docs/install.md says how it is
// built.
//
// The test modules/names wants every public name here (docs/site/stage.py), and every name that a page or an example
// writes, but those of components, which are headers:
// components: cuda_storage cuda_stream gloo_backend gloo_options mpi_backend mpi_options mpi_progress nccl_backend
// components: nccl_options nccl_from_mpi shared_secret changes has_checkpoints latest_checkpoint model_file
// components: rank_of verify_checkpoint
module;

#include <acco/acco.hpp>
#include <acco/advice.hpp>
#include <acco/galore.hpp>
#include <acco/hierarchical.hpp>
#include <acco/make.hpp>
#include <acco/network/message_backend.hpp>
#include <acco/outer.hpp>

export module acco;

export namespace acco {

// Optimizers
using acco::any_optimizer;
using acco::habit_checks;
using acco::micro_batch_sums;
using acco::non_finite;
using acco::norm_detail;
using acco::optimizer;
using acco::options;
using acco::tensor_spans;
using acco::unfinished;

// Schedules and paces
using acco::any_pace;
using acco::auto_pace;
using acco::carried;
using acco::compensation;
using acco::computation;
using acco::delay_compensation;
using acco::delayed;
using acco::elastic_pace;
using acco::elementwise_compensation;
using acco::elementwise_predictor;
using acco::extrapolation;
using acco::fixed_pace;
using acco::masha;
using acco::measuring_pace;
using acco::no_compensation;
using acco::no_prediction;
using acco::pace;
using acco::pace_seconds;
using acco::predictor;
using acco::round_plan;
using acco::rule_prediction;
using acco::schedule;
using acco::schedule_period;
using acco::step_part;
using acco::synchronous;
using acco::two_phase;
using acco::update;
using acco::velocity;
using acco::weight_prediction;

// Local updates
using acco::averaging;
using acco::clipped_momentum;
using acco::co2;
using acco::delayed_diloco;
using acco::diloco;
using acco::eager;
using acco::eager_diloco;
using acco::fedavg;
using acco::keeping;
using acco::local_sgd;
using acco::local_updates;
using acco::mu_loco;
using acco::outer_report;
using acco::overlap_local_sgd;
using acco::pulling;
using acco::restarting;
using acco::slowmo;
using acco::sparse_exchange;
using acco::streaming_diloco;
using acco::waiting;
using acco::worker_weights;

// GaLore
using acco::galore;

// Which one for a link
using acco::advise;
using acco::compute_times;
using acco::expect;
using acco::link_of;
using acco::measured_ways;
using acco::memory_per_parameter;
using acco::network_link;
using acco::proposal;
using acco::simulate;
using acco::situation;
using acco::timed_part;
using acco::timeline;
using acco::training_size;
using acco::way;
using acco::wire_bytes;

// Chosen by name
using acco::all_rules;
using acco::all_schedules;
using acco::at_pace;
using acco::decorated_schedules;
using acco::make;
using acco::named;
using acco::named_schedules;
using acco::only;
using acco::type_list;
using acco::with_rule;
using acco::with_schedule;
using acco::without;

// Update rules
using acco::adamw;
using acco::check_update_rule;
using acco::decay;
using acco::gpa;
using acco::lion;
using acco::matrix_rule;
using acco::matrix_view;
using acco::muon;
using acco::muon_scale;
using acco::primal_averaging;
using acco::rules;
using acco::sgd;
using acco::update_group;
using acco::update_rule;
using acco::update_step;

// Learning rates
using acco::constant;
using acco::cooldown;
using acco::in_samples;
using acco::in_steps;
using acco::in_tokens;
using acco::learning_rate_function;
using acco::training_position;
using acco::warmup_cosine;
using acco::warmup_cosine_restarts;
using acco::warmup_linear;
using acco::warmup_stable_decay;

// Layouts
using acco::bucket;
using acco::parameter_layout;
using acco::partition;
using acco::tensor_memory;

// Storages and numbers
using acco::bfloat16;
using acco::half;
using acco::host_storage;
using acco::is_finite;
using acco::queue_traits;
using acco::storage;
using acco::storage_queue;
using acco::storage_traits;

// Backends
using acco::backend_traits;
using acco::collective;
using acco::collective_backend;
using acco::solo_backend;
using acco::threads_backend;

// Around a backend
using acco::complete_at_once;
using acco::complete_at_random;
using acco::complete_when_waited_for;
using acco::debug;
using acco::decorated_backend;
using acco::link_model;
using acco::mock_backend;
using acco::mock_counters;
using acco::mock_fault;
using acco::mock_options;
using acco::mock_world;
using acco::rate_limited;
using acco::traced;

// A network of your own
using acco::message_backend;
using acco::message_transport;
using acco::progress;

// Encodings
using acco::against_reference;
using acco::auto_encoding;
using acco::bfloat16_wire;
using acco::block_dct2_top;
using acco::block_dct_top;
using acco::block_gauss2;
using acco::block_gauss3;
using acco::block_gauss4;
using acco::block_int4;
using acco::block_int8;
using acco::block_random;
using acco::block_sign;
using acco::block_stat2;
using acco::block_ternary;
using acco::block_top;
using acco::coded;
using acco::decoupled_momentum;
using acco::demo;
using acco::demo_sharded;
using acco::demo_wire;
using acco::ef21;
using acco::encoding;
using acco::error_feedback;
using acco::feedback;
using acco::full;
using acco::int8_blocks;
using acco::local_momentum;
using acco::majority_vote;
using acco::mean_over;
using acco::own_corrected;
using acco::own_slice;
using acco::planned;
using acco::planned_bucket;
using acco::reference_gradients;
using acco::rotated;
using acco::scaled_random;
using acco::updated_by_all;
using acco::with_feedback;
using acco::with_feedback_ahead;

// Reports, memory, traces
using acco::memory_table;
using acco::round_report;
using acco::round_totals;
using acco::save_outcome;
using acco::time_interval;
using acco::trace;

// Errors
using acco::checkpoint_error;
using acco::corruption_error;
using acco::deadline_error;
using acco::device_error;
using acco::error;
using acco::error_place;
using acco::memory_error;
using acco::mismatch_error;
using acco::non_finite_error;
using acco::peer_error;
using acco::spike_error;
using acco::usage_error;

// Version
using acco::version;
using acco::version_number;

// What pages and examples name besides
using acco::all_reduce_and_wait;
using acco::between_groups;
using acco::commits;
using acco::feedback_schedules;
using acco::hierarchical_world;
using acco::host_queue;
using acco::local_methods;
using acco::loosely;
using acco::make_queue;
using acco::masha2;
using acco::partial;
using acco::period_of;
using acco::power_sgd;
using acco::replicated;
using acco::require_not_negative;
using acco::seconds_of;
using acco::sharded;
using acco::square_root;
using acco::together;
using acco::traits_of;
using acco::update_regions;
using acco::weights;
using acco::with_error_feedback;

}  // namespace acco
