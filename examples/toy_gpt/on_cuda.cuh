// SPDX-License-Identifier: Apache-2.0
// Optimizers on GPUs. Those of bfloat16 are made in on_cuda_bfloat16.cu, so that two cores share the work of compiling.
#pragma once

#include <acco/cuda.hpp>
#ifdef TOY_GPT_NCCL
#include <acco/nccl.hpp>
#endif

#include "choose.hpp"

namespace toy_gpt {

using bfloat16_on_cuda = acco::cuda_storage<acco::bfloat16>;
extern template training_of<bfloat16_on_cuda> make_training(settings const&, bfloat16_on_cuda const&,
                                                            acco::threads_backend const&, acco::parameter_layout const&,
                                                            acco::options const&);
#ifdef TOY_GPT_NCCL
extern template training_of<bfloat16_on_cuda> make_training(settings const&, bfloat16_on_cuda const&, acco::nccl_backend const&,
                                                            acco::parameter_layout const&, acco::options const&);
#endif

}  // namespace toy_gpt
