// SPDX-License-Identifier: Apache-2.0
// A stranger's program with a model of ggml: compiled and linked wherever the component is found.
#include <cstdio>

#include <acco/attach/ggml.hpp>

int main() {
  ggml_context* context = ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true});
  ggml_tensor* weight = ggml_new_tensor_2d(context, GGML_TYPE_F32, 3, 3);
  const auto found = acco::attach::parameters_of(weight);
  std::printf("%d parameters\n", static_cast<int>(found.size()));
  ggml_free(context);
}
