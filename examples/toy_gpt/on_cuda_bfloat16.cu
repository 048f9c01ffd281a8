// SPDX-License-Identifier: Apache-2.0
#include "on_cuda.cuh"

namespace toy_gpt {

template training_of<bfloat16_on_cuda> make_training(settings const&, bfloat16_on_cuda const&, acco::threads_backend const&,
                                                     acco::parameter_layout const&, acco::options const&);
#ifdef TOY_GPT_NCCL
template training_of<bfloat16_on_cuda> make_training(settings const&, bfloat16_on_cuda const&, acco::nccl_backend const&,
                                                     acco::parameter_layout const&, acco::options const&);
#endif

}  // namespace toy_gpt
