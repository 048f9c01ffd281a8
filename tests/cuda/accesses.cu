// SPDX-License-Identifier: Apache-2.0
// Compiled to PTX, never run: tests/cuda/accesses.cmake looks at how the update passes memory.
#include <acco/rule/adamw.hpp>
#include <acco/storage/cuda.hpp>

template <class Parameter>
void commit(acco::cuda_queue& queue, bool const* wanted, acco::adamw::constants const* constants, double const* scale,
            acco::elementwise::update_arguments<float, float, Parameter, 2> const* arguments) {
  acco::cuda_storage<Parameter>::template apply<acco::adamw, acco::update::commit>(queue, wanted, constants, constants, scale,
                                                                                   arguments);
}
template void commit<float>(acco::cuda_queue&, bool const*, acco::adamw::constants const*, double const*,
                            acco::elementwise::update_arguments<float, float, float, 2> const*);
template void commit<acco::bfloat16>(acco::cuda_queue&, bool const*, acco::adamw::constants const*, double const*,
                                     acco::elementwise::update_arguments<float, float, acco::bfloat16, 2> const*);
