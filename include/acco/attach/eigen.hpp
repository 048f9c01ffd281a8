// SPDX-License-Identifier: Apache-2.0
// Tensors of a layout as matrices, vectors and arrays of Eigen (component `eigen`), by name and without a copy.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <Eigen/Core>

#include "acco/any_optimizer.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"

namespace ACCO_NAMESPACE::attach {

/// Appends a tensor of a matrix's shape, {rows, columns}, or a vector's, {size}, to the layout: its name must be new.
/// An array is like a matrix. The values are not looked at. Throws what `parameter_layout::add` throws.
template <class Matrix>
parameter_layout& add(parameter_layout& layout, std::string_view name, Eigen::DenseBase<Matrix> const& like,
                      std::size_t group = 0) {
  const auto rows = static_cast<std::size_t>(like.rows()), columns = static_cast<std::size_t>(like.cols());
  if constexpr (Matrix::IsVectorAtCompileTime) {
    return layout.add(name, {rows * columns}, group);
  } else {
    return layout.add(name, {rows, columns}, group);
  }
}

/// `Matrix` with other numbers: an array where it is one, and as row-major as it was.
template <class Matrix, class Number>
using with_numbers =
    std::conditional_t<std::is_base_of_v<Eigen::ArrayBase<Matrix>, Matrix>,
                       Eigen::Array<Number, Matrix::RowsAtCompileTime, Matrix::ColsAtCompileTime, Matrix::Options,
                                    Matrix::MaxRowsAtCompileTime, Matrix::MaxColsAtCompileTime>,
                       Eigen::Matrix<Number, Matrix::RowsAtCompileTime, Matrix::ColsAtCompileTime, Matrix::Options,
                                     Matrix::MaxRowsAtCompileTime, Matrix::MaxColsAtCompileTime>>;

/// A tensor's elements, which lie at `elements`, as a matrix or vector: a map that is `const` where `Number` is. Valid
/// as long as they lie there. A tensor of two dimensions is a row-major `Eigen::Matrix` or `Eigen::Array`; of one
/// dimension, a vector (column or row); of none, a vector of one. Fixed sizes are compared, dynamic ones follow the
/// tensor up to their maximum. Throws `usage_error` on another shape.
template <class Matrix, class Number>
[[nodiscard]] auto map(parameter_layout::tensor const& tensor, Number* elements) {
  static_assert(Matrix::IsVectorAtCompileTime || Matrix::IsRowMajor,
                "acco: the tensors of a layout are row-major; ask for Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, "
                "Eigen::RowMajor>. It may be used in expressions with column-major matrices");
  static_assert(
      std::is_same_v<typename Matrix::Scalar, std::remove_const_t<Number>>,
      "acco: the matrix's numbers are not the optimizer's: a float matrix maps parameters and gradients that are float");
  constexpr int rows_wanted = Matrix::RowsAtCompileTime, columns_wanted = Matrix::ColsAtCompileTime;
  constexpr int most_rows = Matrix::MaxRowsAtCompileTime, most_columns = Matrix::MaxColsAtCompileTime;
  constexpr bool vector = Matrix::IsVectorAtCompileTime;
  const std::size_t dimensions = tensor.shape.size();
  bool fits = dimensions == 2 || (vector && dimensions < 2);
  std::size_t rows = dimensions > 0 ? tensor.shape[0] : 1, columns = dimensions > 1 ? tensor.shape[1] : 1;
  if (dimensions < 2 && rows_wanted == 1 && columns_wanted != 1) {  // a row
    columns = rows;
    rows = 1;
  }
  const auto agrees = [](int wanted, int most, std::size_t extent) {
    if (wanted != Eigen::Dynamic) return static_cast<std::size_t>(wanted) == extent;
    return most == Eigen::Dynamic || static_cast<std::size_t>(most) >= extent;
  };
  fits = fits && agrees(rows_wanted, most_rows, rows) && agrees(columns_wanted, most_columns, columns);
  if (!fits) {
    text shape("[");
    for (std::size_t k = 0; k < dimensions; ++k) shape.append(k == 0 ? "" : ", ").append(tensor.shape[k]);
    shape.append("]");
    text wanted(vector ? "vector of " : "matrix of ");
    const auto extent_wanted = [&](int extent, int most) {
      if (most == Eigen::Dynamic) {
        wanted.append("any");
      } else {
        wanted.append(extent == Eigen::Dynamic ? "up to " : "").append(most);
      }
    };
    extent_wanted(rows_wanted, most_rows);
    wanted.append(" x ");
    extent_wanted(columns_wanted, most_columns);
    throw usage_error(
        {}, text("tensor '", tensor.name, "' of shape ", shape, " is no ", wanted),
        text("Ask for a matrix where the layout has two dimensions, for a vector where it has one, and for its sizes"));
  }
  using mapped = std::conditional_t<std::is_const_v<Number>, Matrix const, Matrix>;
  return Eigen::Map<mapped>(elements, static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns));
}

/// The tensor of that name in a whole array in the order of the layout: of the spans that `step` hands out, of what
/// `gather_committed` wrote, of initial values. Throws `usage_error` on an unknown name, another shape, an array of
/// another size.
template <class Matrix, class Number>
[[nodiscard]] auto map(parameter_layout const& layout, std::span<Number> whole, std::string_view name) {
  auto const tensor = layout[name];
  if (whole.size() != layout.size()) {
    throw usage_error(
        {}, text("tensor '", name, "' was asked for in an array of ", whole.size(), " elements, the layout has ", layout.size()),
        text("Pass the whole array"));
  }
  return map<Matrix>(tensor, whole.data() + tensor.offset);
}

/// The parameters of a tensor, to read. Valid until the next report, or for ever with `options::stable_addresses` and
/// after `adopt`. Throws `usage_error` on an unknown name, another shape, or before `initialize`.
template <class Matrix, class Parameter, class Gradient>
[[nodiscard]] auto parameters(any_optimizer<Parameter, Gradient> const& training, std::string_view name) {
  return map<Matrix>(training.layout()[name], training.tensor(name).parameters.data());
}

/// The sums of its gradients, to be added to (`+=`). Valid like them, and throws like that; also where a frozen tensor
/// was adopted without gradients. `Matrix` has the optimizer's parameters for numbers, what comes back its gradients.
template <class Matrix, class Parameter, class Gradient>
[[nodiscard]] auto gradients(any_optimizer<Parameter, Gradient> const& training, std::string_view name) {
  auto const tensor = training.layout()[name];
  auto const found = training.tensor(name).gradients;
  if (found.size() != tensor.size) {
    throw usage_error({}, text("tensor '", name, "' was adopted without gradients"),
                      text("It is frozen: ask for acco::attach::parameters alone, or give adopt an array for its gradients"));
  }
  return map<with_numbers<Matrix, Gradient>>(tensor, found.data());
}

/// Both.
template <class Parameters, class Gradients>
struct matrix_pair {
  Parameters parameters;
  Gradients gradients;
};

/// Both, of one tensor:
///
///   using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
///   auto [w, dw] = acco::attach::matrix<matrix>(training, "weight");
///   dw.noalias() += errors.transpose() * inputs;
template <class Matrix, class Parameter, class Gradient>
[[nodiscard]] auto matrix(any_optimizer<Parameter, Gradient> const& training, std::string_view name) {
  return matrix_pair{parameters<Matrix>(training, name), gradients<Matrix>(training, name)};
}

}  // namespace ACCO_NAMESPACE::attach
