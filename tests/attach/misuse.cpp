// SPDX-License-Identifier: Apache-2.0
// Matrices that are not the optimizer's; ../compile_fail/sections.cmake says how the sections are read.
#include <acco/attach/eigen.hpp>

void read(acco::any_optimizer<float> const& training) {
  (void)acco::attach::parameters<Eigen::VectorXf>(training, "bias");
#if defined(COLUMN_MAJOR)  // expect: acco: the tensors of a layout are row-major
  (void)acco::attach::parameters<Eigen::MatrixXf>(training, "weight");
#endif
#if defined(OTHER_NUMBERS)  // expect: acco: the matrix's numbers are not the optimizer's
  (void)acco::attach::parameters<Eigen::VectorXd>(training, "bias");
#endif
}
