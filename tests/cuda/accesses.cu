// SPDX-License-Identifier: Apache-2.0
// Compiled to PTX, never run: tests/cuda/accesses.cmake looks at how the update passes memory.
#include <acco/cuda/storage.hpp>
#include <acco/rule/adamw.hpp>

using table = acco::update_table<acco::adamw, float, float>;
template <class Parameter>
void commit(acco::cuda_queue& queue, table const* arrays, Parameter* out) {
  acco::cuda_storage<Parameter>::template apply<acco::adamw, acco::update::commit>(queue, arrays, 0, 1, out);
}
template void commit<float>(acco::cuda_queue&, table const*, float*);
template void commit<acco::bfloat16>(acco::cuda_queue&, table const*, acco::bfloat16*);
