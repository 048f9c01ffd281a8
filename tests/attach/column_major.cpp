// SPDX-License-Identifier: Apache-2.0
// Must not compile, with the sentence that tests/attach/CMakeLists.txt expects.
#include <acco/attach/eigen.hpp>

void read(acco::any_optimizer<float> const& training) { (void)acco::attach::parameters<Eigen::MatrixXf>(training, "weight"); }
