// SPDX-License-Identifier: Apache-2.0
// Compiled, never run: tests/cuda/accesses.py looks at how kernels pass memory. Each is made for float, bfloat16 and
// half.
#include <acco/code/bfloat16_wire.hpp>
#include <acco/code/block_integer.hpp>
#include <acco/cuda/storage.hpp>
#include <acco/cuda/threads.hpp>
#include <acco/half.hpp>
#include <acco/rule/adamw.hpp>

struct arrays {
  acco::update_table<acco::adamw, float, float> const* table;
  acco::update_block const* blocks;
  float* sums;
  double* squares;
  std::byte* codes;
  acco::coding::refused bad;
  bool const* wanted;
};

template <class T, class Encoding>
void encoded(acco::cuda_queue& queue, arrays const& a, T* values, Encoding const& e) {
  using storage = acco::cuda_storage<T>;
  const acco::trainable_view<T> view{values, nullptr, 1};
  storage::encode(queue, e, static_cast<T const*>(values), 0, 1, 1, a.codes, a.bad, 1);
  storage::encode_difference(queue, e, static_cast<T const*>(values), view, 0, 1, a.codes, a.bad);
  storage::decode_sum(queue, e, a.codes, 2, a.sums, 1, true);
  storage::decode_sum(queue, e, a.codes, 2, a.sums, 1, false);
  storage::decode_onto(queue, e, a.codes, view, 0, 1, 1, values);
}

template <class T>
void all_kernels(acco::cuda_queue& queue, arrays const& a, T* values) {
  using storage = acco::cuda_storage<T>;
  storage::template apply<acco::adamw, acco::update::predict>(queue, a.table, 0, 1, values);
  storage::template apply<acco::adamw, acco::update::commit>(queue, a.table, 0, 1, values);
  storage::template apply<acco::adamw, acco::update::commit_and_predict>(queue, a.table, 0, 1, values);
  storage::convert(queue, static_cast<float const*>(a.sums), values, 1);
  storage::convert(queue, static_cast<T const*>(values), a.sums, 1);
  storage::add(queue, static_cast<T const*>(values), a.sums, 1);
  storage::squares_of_blocks(queue, a.sums, a.blocks, 0, 1, a.squares);
  storage::take_sums(queue, values, a.sums, 1, true, a.squares);
  storage::take_sums(queue, values, a.sums, 1, false, a.squares);
  storage::clear_if(queue, a.wanted, values, 1);
  storage::find_non_finite(queue, a.wanted, static_cast<T const*>(values), 1, a.bad.found, a.bad.first);
  encoded(queue, a, values, acco::block_int4<>{});
  encoded(queue, a, values, acco::block_int8<>{});
  encoded(queue, a, values, acco::bfloat16_wire{});
  acco::threads_cuda::sum<T, float, true>({nullptr}, 2, {}, 0, std::span<float>(a.sums, 1));
}
/// Blocks whose numbers fill many registers, or one stretch only.
void other_blocks(acco::cuda_queue& queue, arrays const& a, acco::bfloat16* values) {
  encoded(queue, a, values, acco::block_int4<1024>{});
  encoded(queue, a, values, acco::block_int8<512>{});
  encoded(queue, a, values, acco::block_int4<128>{});
  acco::cuda_storage<float>::average(queue, a.wanted, a.sums, a.sums, 1, 0.5);
}
template <class Encoding, class Place>
void kept(acco::cuda_queue& queue, arrays const& a, float const* values, Place state) {
  using storage = acco::cuda_storage<float>;
  const Encoding e;
  storage::encode_with_feedback(queue, e, values, state, 0, 1, 64, a.codes, a.bad, 1);
  storage::keep_feedback(queue, a.wanted, e, values, state, 1, 64, a.codes, 1);
}
/// Codes of levels, and those that choose, in a warp and in a thread block; what a feedback keeps.
void other_codes(acco::cuda_queue& queue, arrays const& a, float* values) {
  kept<acco::with_error_feedback<acco::block_int4<>>>(queue, a, values, a.sums);
  kept<acco::with_error_feedback<acco::block_int4<>, acco::int8_blocks>>(queue, a, values, acco::int8_place{});
  kept<acco::with_error_feedback<acco::block_top<64, 4096, 2>, acco::int8_blocks>>(queue, a, values, acco::int8_place{});
  encoded(queue, a, values, acco::block_gauss4{});
  encoded(queue, a, values, acco::block_gauss3{});
  encoded(queue, a, values, acco::block_gauss2{});
  encoded(queue, a, values, acco::block_stat2{});
  encoded(queue, a, values, acco::block_ternary{});
  encoded(queue, a, values, acco::block_sign{});
  encoded(queue, a, values, acco::majority_vote{});
  encoded(queue, a, values, acco::rotated<acco::block_gauss3>{});
  encoded(queue, a, values, acco::rotated<acco::block_int4<>>{});
  encoded(queue, a, values, acco::block_top<16>{});
  encoded(queue, a, values, acco::block_random<32>{});
  encoded(queue, a, values, acco::block_dct_top<16>{});
  encoded(queue, a, values, acco::block_top<64, 4096, 2>{});
  encoded(queue, a, values, acco::scaled_random<65, 4096>{});
  encoded(queue, a, values, acco::block_dct2_top<64, 2>{});
}
static_assert(acco::half(1.0F).bits() == 0x3c00, "a constant, in files of nvcc too");
template void all_kernels<float>(acco::cuda_queue&, arrays const&, float*);
template void all_kernels<acco::bfloat16>(acco::cuda_queue&, arrays const&, acco::bfloat16*);
template void all_kernels<acco::half>(acco::cuda_queue&, arrays const&, acco::half*);
