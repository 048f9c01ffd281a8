// SPDX-License-Identifier: Apache-2.0
// A stranger's program with matrices: compiled and linked wherever the component is found.
#include <cstdio>
#include <span>

#include <acco/attach/eigen.hpp>

int main() {
  acco::parameter_layout layout;
  acco::attach::add(layout, "weight", Eigen::Matrix3f());
  float numbers[9] = {};
  const auto weight = acco::attach::map<Eigen::Matrix<float, 3, 3, Eigen::RowMajor>>(layout, std::span<float>(numbers), "weight");
  std::printf("%d rows\n", static_cast<int>(weight.rows()));
}
