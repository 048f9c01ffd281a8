// SPDX-License-Identifier: Apache-2.0
// The same GPT on a GPU: gpt.hpp line by line, with cuBLASLt for matrix products and a kernel for everything else.
// Kernels are short rather than fast: a thread takes a row, a column or an element, sums have a fixed order, nothing is
// atomic; so two runs give the same bits. Activations are floats whatever the parameters are stored in.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cub/device/device_for.cuh>
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <acco/cuda.hpp>

#include "gpt.hpp"

namespace toy_gpt {

// --- kernels
// -----------------------------------------------------------------------------------------------------------------------------

/// body(i) for all i < count.
template <class Body>
void launch(cudaStream_t stream, std::size_t count, Body const& body) {
  acco::check_cuda(cub::DeviceFor::Bulk(count, body, stream), "cub::DeviceFor::Bulk");
}

struct embed {
  unsigned char const* bytes;
  float const *token, *place;
  float* out;
  std::size_t context, width;
  __device__ void operator()(std::size_t i) const {
    const std::size_t r = i / width, j = i % width;
    out[i] = token[bytes[r] * width + j] + place[r % context * width + j];
  }
};
/// A thread per column: rows come in their order.
struct embed_backward {
  unsigned char const* bytes;
  float const* d;
  float *d_token, *d_place;
  std::size_t rows, context, width;
  __device__ void operator()(std::size_t j) const {
    for (std::size_t r = 0; r < rows; ++r) {
      d_token[bytes[r] * width + j] += d[r * width + j];
      d_place[r % context * width + j] += d[r * width + j];
    }
  }
};

struct fill_rows {
  float const* bias;
  float* out;
  std::size_t width;
  __device__ void operator()(std::size_t i) const { out[i] = bias[i % width]; }
};
struct sum_rows {
  float const* in;
  float* out;
  std::size_t rows, width;
  __device__ void operator()(std::size_t j) const {
    float sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += in[r * width + j];
    out[j] += sum;
  }
};
struct add_to {
  float const* in;
  float* out;
  __device__ void operator()(std::size_t i) const { out[i] += in[i]; }
};

struct normalise {
  float const *in, *gain, *bias;
  float *out, *mean, *inverse;
  std::size_t width;
  __device__ void operator()(std::size_t r) const {
    float const* const x = in + r * width;
    float sum = 0, squares = 0;
    for (std::size_t j = 0; j < width; ++j) sum += x[j];
    const float m = sum / static_cast<float>(width);
    for (std::size_t j = 0; j < width; ++j) squares += (x[j] - m) * (x[j] - m);
    const float s = 1 / sqrtf(squares / static_cast<float>(width) + 1e-5F);
    for (std::size_t j = 0; j < width; ++j) out[r * width + j] = (x[j] - m) * s * gain[j] + bias[j];
    mean[r] = m;
    inverse[r] = s;
  }
};
/// Adds to d_in.
struct normalise_backward_rows {
  float const *in, *gain, *mean, *inverse, *d_out;
  float* d_in;
  std::size_t width;
  __device__ void operator()(std::size_t r) const {
    float const* const x = in + r * width;
    float const* const d = d_out + r * width;
    float sum = 0, along = 0;
    for (std::size_t j = 0; j < width; ++j) {
      sum += d[j] * gain[j];
      along += d[j] * gain[j] * (x[j] - mean[r]) * inverse[r];
    }
    sum /= static_cast<float>(width);
    along /= static_cast<float>(width);
    for (std::size_t j = 0; j < width; ++j)
      d_in[r * width + j] += inverse[r] * (d[j] * gain[j] - sum - (x[j] - mean[r]) * inverse[r] * along);
  }
};
struct normalise_backward_columns {
  float const *in, *mean, *inverse, *d_out;
  float *d_gain, *d_bias;
  std::size_t rows, width;
  __device__ void operator()(std::size_t j) const {
    float gain = 0, bias = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      gain += d_out[r * width + j] * (in[r * width + j] - mean[r]) * inverse[r];
      bias += d_out[r * width + j];
    }
    d_gain[j] += gain;
    d_bias[j] += bias;
  }
};

struct gelu {
  float const* in;
  float *gate, *out;
  __device__ void operator()(std::size_t i) const {
    const float x = in[i];
    gate[i] = 1 / (1 + expf(-1.5957691216F * (x + 0.044715F * x * x * x)));
    out[i] = x * gate[i];
  }
};
struct gelu_back {
  float const *in, *gate;
  float* d;
  __device__ void operator()(std::size_t i) const {
    const float x = in[i], g = gate[i];
    d[i] *= g + x * g * (1 - g) * 1.5957691216F * (1 + 3 * 0.044715F * x * x);
  }
};

/// One query: its shares of the past, and the mixture of values. `i` counts sequence, head, position.
struct attend {
  float const* qkv;
  float *share, *out;
  std::size_t context, width, heads;
  __device__ void operator()(std::size_t i) const {
    const std::size_t size = width / heads, at = i % context, h = i / context % heads, b = i / context / heads;
    float const* const q = qkv + (b * context + at) * 3 * width + h * size;
    float const* const keys = qkv + b * context * 3 * width + width + h * size;
    float* const row = share + i * context;
    const float scale = 1 / sqrtf(static_cast<float>(size));
    float largest = -1e30F, sum = 0;
    for (std::size_t j = 0; j <= at; ++j) {
      float dot = 0;
      for (std::size_t k = 0; k < size; ++k) dot += q[k] * keys[j * 3 * width + k];
      row[j] = dot * scale;
      largest = row[j] > largest ? row[j] : largest;
    }
    for (std::size_t j = 0; j <= at; ++j) sum += row[j] = expf(row[j] - largest);
    for (std::size_t j = 0; j < context; ++j) row[j] = j <= at ? row[j] / sum : 0;
    for (std::size_t k = 0; k < size; ++k) {
      float mixed = 0;
      for (std::size_t j = 0; j <= at; ++j) mixed += row[j] * keys[j * 3 * width + width + k];
      out[(b * context + at) * width + h * size + k] = mixed;
    }
  }
};
/// The gradient of one query's scores, before the scale; thread as above.
struct attend_backward_scores {
  float const *qkv, *share, *d_out;
  float* d_score;
  std::size_t context, width, heads;
  __device__ void operator()(std::size_t i) const {
    const std::size_t size = width / heads, at = i % context, h = i / context % heads, b = i / context / heads;
    float const* const d = d_out + (b * context + at) * width + h * size;
    float const* const values = qkv + b * context * 3 * width + 2 * width + h * size;
    float const* const row = share + i * context;
    float* const d_row = d_score + i * context;
    float along = 0;
    for (std::size_t j = 0; j <= at; ++j) {
      float dot = 0;
      for (std::size_t k = 0; k < size; ++k) dot += d[k] * values[j * 3 * width + k];
      d_row[j] = dot;
      along += row[j] * dot;
    }
    for (std::size_t j = 0; j < context; ++j) d_row[j] = j <= at ? row[j] * (d_row[j] - along) : 0;
  }
};
/// Gradients of query, key and value at one position of one head.
struct attend_backward {
  float const *qkv, *share, *d_score, *d_out;
  float* d_qkv;
  std::size_t context, width, heads;
  __device__ void operator()(std::size_t i) const {
    const std::size_t size = width / heads, at = i % context, h = i / context % heads, b = i / context / heads;
    const float scale = 1 / sqrtf(static_cast<float>(size));
    float const* const sequence = qkv + b * context * 3 * width + h * size;
    float* const d = d_qkv + (b * context + at) * 3 * width + h * size;
    const std::size_t first = (b * heads + h) * context * context;
    for (std::size_t k = 0; k < size; ++k) {
      float query = 0, key = 0, value = 0;
      for (std::size_t j = 0; j <= at; ++j) query += d_score[first + at * context + j] * sequence[j * 3 * width + width + k];
      for (std::size_t j = at; j < context; ++j) {
        key += d_score[first + j * context + at] * sequence[j * 3 * width + k];
        value += share[first + j * context + at] * d_out[(b * context + j) * width + h * size + k];
      }
      d[k] = query * scale;
      d[width + k] = key * scale;
      d[2 * width + k] = value;
    }
  }
};

/// Turns a row of logits into its gradient; the row's loss goes to `losses`.
struct cross_entropy_row {
  float* logits;
  unsigned char const* targets;
  double* losses;
  std::size_t vocabulary;
  float gradient_scale;
  __device__ void operator()(std::size_t r) const {
    float* const row = logits + r * vocabulary;
    float largest = row[0], sum = 0;
    for (std::size_t j = 0; j < vocabulary; ++j) largest = row[j] > largest ? row[j] : largest;
    const float target = row[targets[r]];
    for (std::size_t j = 0; j < vocabulary; ++j) sum += row[j] = expf(row[j] - largest);
    losses[r] = static_cast<double>(logf(sum) + largest - target);
    for (std::size_t j = 0; j < vocabulary; ++j) row[j] *= gradient_scale / sum;
    row[targets[r]] -= gradient_scale;
  }
};
struct sum_losses {
  double const* losses;
  double* sum;
  std::size_t rows;
  __device__ void operator()(std::size_t) const {
    *sum = 0;
    for (std::size_t r = 0; r < rows; ++r) *sum += losses[r];
  }
};

// --- matrix products
// ---------------------------------------------------------------------------------------------------------------------

/// Row-major products of floats by cuBLASLt, which thinks in columns: it is handed b and a, transposed.
class products {
 public:
  products() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }
  products(products const&) = delete;
  products& operator=(products const&) = delete;
  ~products() { (void)cublasLtDestroy(handle_); }

  /// c (m x n) = a (m x k, or its transpose) b (k x n, or its transpose) + c * keep.
  void multiply(cudaStream_t stream, form a_form, form b_form, std::size_t m, std::size_t n, std::size_t k, matrix<float const> a,
                matrix<float const> b, float keep, matrix<float> c) const {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
    check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t op_b = b_form == form::plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t op_a = a_form == form::plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b),
          "cublasLtMatmulDescSetAttribute");
    check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a),
          "cublasLtMatmulDescSetAttribute");
    const auto layout = [](cublasLtMatrixLayout_t& to, form how, std::size_t rows, std::size_t columns, std::size_t stride) {
      check(cublasLtMatrixLayoutCreate(&to, CUDA_R_32F, how == form::plain ? columns : rows, how == form::plain ? rows : columns,
                                       static_cast<std::int64_t>(stride)),
            "cublasLtMatrixLayoutCreate");
    };
    layout(left, b_form, k, n, b.stride);
    layout(right, a_form, m, k, a.stride);
    layout(out, form::plain, m, n, c.stride);
    const float one = 1;
    check(cublasLtMatmul(handle_, product, &one, b.data, left, a.data, right, &keep, c.data, out, c.data, out, nullptr, nullptr,
                         0, stream),
          "cublasLtMatmul");
    for (auto* each : {left, right, out}) (void)cublasLtMatrixLayoutDestroy(each);
    (void)cublasLtMatmulDescDestroy(product);
  }

 private:
  static void check(cublasStatus_t code, char const* call) {
    if (code != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error(std::string(call) + " failed with status " + std::to_string(static_cast<int>(code)));
  }
  cublasLtHandle_t handle_ = nullptr;
};

// --- the model
// ---------------------------------------------------------------------------------------------------------------------------

/// gpt<float> on `stream`; parameters and gradients are device memory.
class gpt_on_gpu {
 public:
  gpt_on_gpu(shape const& s, cudaStream_t stream) : shape_(s), at_(s), stream_(stream) {}

  [[nodiscard]] acco::parameter_layout const& layout() const { return at_.layout; }
  [[nodiscard]] shape const& dimensions() const { return shape_; }

  /// Enqueues: adds the gradient of the SUM over sequences of the mean loss per byte; returns that sum when it is
  /// known.
  double add_gradients(batch const& data, float const* parameters, float* gradients) {
    forward(data, parameters);
    const double loss = losses(1 / static_cast<float>(shape_.context));
    backward(parameters, gradients);
    return loss;
  }
  /// The same sum without gradients.
  double loss(batch const& data, float const* parameters) {
    forward(data, parameters);
    return losses(0);
  }

 private:
  using buffer = acco::cuda_buffer;
  struct block_activations {
    buffer in, norm1, mean1, inverse1, qkv, share, mixed, middle, norm2, mean2, inverse2, up, gate, raised;
  };
  static float* of(buffer const& which) { return which.as<float>(); }

  void reserve(std::size_t sequences) {
    if (sequences == sequences_) return;
    sequences_ = sequences;
    rows_ = sequences * shape_.context;
    const std::size_t w = shape_.width, attention = sequences * shape_.heads * shape_.context * shape_.context;
    const auto make = [&](buffer& to, std::size_t bytes) { to = buffer(acco::default_cuda_memory(), stream_, bytes); };
    blocks_.resize(shape_.layers);
    for (block_activations& a : blocks_) {
      for (auto* wide : {&a.in, &a.norm1, &a.mixed, &a.middle, &a.norm2}) make(*wide, 4 * rows_ * w);
      for (auto* narrow : {&a.mean1, &a.inverse1, &a.mean2, &a.inverse2}) make(*narrow, 4 * rows_);
      for (auto* tall : {&a.up, &a.gate, &a.raised}) make(*tall, 16 * rows_ * w);
      make(a.qkv, 12 * rows_ * w);
      make(a.share, 4 * attention);
    }
    for (auto* wide : {&out_, &norm_, &d_stream_, &d_branch_, &d_mixed_}) make(*wide, 4 * rows_ * w);
    for (auto* narrow : {&mean_, &inverse_}) make(*narrow, 4 * rows_);
    make(d_wide_, 16 * rows_ * w);
    make(d_score_, 4 * attention);
    make(logits_, 4 * rows_ * shape::vocabulary);
    make(bytes_, 2 * rows_);
    make(losses_, 8 * (rows_ + 1));
    host_bytes_ = acco::pinned_buffer(2 * rows_);
    host_loss_ = acco::pinned_buffer(sizeof(double));
  }

  void linear(float const* in, float const* weight, float const* bias, float* out, std::size_t in_width, std::size_t out_width) {
    if (bias != nullptr) launch(stream_, rows_ * out_width, fill_rows{bias, out, out_width});
    products_.multiply(stream_, form::plain, form::transposed, rows_, out_width, in_width, {in, in_width}, {weight, in_width},
                       bias != nullptr ? 1 : 0, {out, out_width});
  }
  void linear_back(float const* in, float const* weight, float const* d_out, float* d_in, float* d_weight, float* d_bias,
                   std::size_t in_width, std::size_t out_width) {
    products_.multiply(stream_, form::plain, form::plain, rows_, in_width, out_width, {d_out, out_width}, {weight, in_width}, 0,
                       {d_in, in_width});
    products_.multiply(stream_, form::transposed, form::plain, out_width, in_width, rows_, {d_out, out_width}, {in, in_width}, 1,
                       {d_weight, in_width});
    if (d_bias != nullptr) launch(stream_, out_width, sum_rows{d_out, d_bias, rows_, out_width});
  }
  void normalise_back(float const* in, float const* gain, float const* mean, float const* inverse, float* d_gain, float* d_bias) {
    const std::size_t w = shape_.width;
    launch(stream_, rows_, normalise_backward_rows{in, gain, mean, inverse, of(d_branch_), of(d_stream_), w});
    launch(stream_, w, normalise_backward_columns{in, mean, inverse, of(d_branch_), d_gain, d_bias, rows_, w});
  }

  void forward(batch const& data, float const* p) {
    reserve(data.sequences);
    const std::size_t w = shape_.width;
    acco::check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // the bytes before have been read
    std::copy_n(data.inputs.begin(), rows_, host_bytes_.as<unsigned char>());
    std::copy_n(data.targets.begin(), std::min(rows_, data.targets.size()), host_bytes_.as<unsigned char>() + rows_);
    acco::check_cuda(cudaMemcpyAsync(bytes_.as<char>(), host_bytes_.as<char>(), 2 * rows_, cudaMemcpyHostToDevice, stream_),
                     "cudaMemcpyAsync");
    launch(stream_, rows_ * w,
           embed{bytes_.as<unsigned char>(), p + at_.embedding, p + at_.position, of(shape_.layers > 0 ? blocks_[0].in : out_),
                 shape_.context, w});
    for (std::size_t l = 0; l < shape_.layers; ++l) {
      block_activations& a = blocks_[l];
      block_offsets const& at = at_.blocks[l];
      float* const out = of(l + 1 < shape_.layers ? blocks_[l + 1].in : out_);
      launch(stream_, rows_,
             normalise{of(a.in), p + at.norm1_gain, p + at.norm1_bias, of(a.norm1), of(a.mean1), of(a.inverse1), w});
      linear(of(a.norm1), p + at.qkv, p + at.qkv_bias, of(a.qkv), w, 3 * w);
      launch(stream_, rows_ * shape_.heads, attend{of(a.qkv), of(a.share), of(a.mixed), shape_.context, w, shape_.heads});
      linear(of(a.mixed), p + at.project, p + at.project_bias, of(a.middle), w, w);
      launch(stream_, rows_ * w, add_to{of(a.in), of(a.middle)});
      launch(stream_, rows_,
             normalise{of(a.middle), p + at.norm2_gain, p + at.norm2_bias, of(a.norm2), of(a.mean2), of(a.inverse2), w});
      linear(of(a.norm2), p + at.up, p + at.up_bias, of(a.up), w, 4 * w);
      launch(stream_, rows_ * 4 * w, gelu{of(a.up), of(a.gate), of(a.raised)});
      linear(of(a.raised), p + at.down, p + at.down_bias, out, 4 * w, w);
      launch(stream_, rows_ * w, add_to{of(a.middle), out});
    }
    launch(stream_, rows_, normalise{of(out_), p + at_.norm_gain, p + at_.norm_bias, of(norm_), of(mean_), of(inverse_), w});
    linear(of(norm_), p + at_.embedding, nullptr, of(logits_), w, shape::vocabulary);
  }

  double losses(float gradient_scale) {
    launch(stream_, rows_,
           cross_entropy_row{of(logits_), bytes_.as<unsigned char>() + rows_, losses_.as<double>(), shape::vocabulary,
                             gradient_scale});
    launch(stream_, 1, sum_losses{losses_.as<double>(), losses_.as<double>() + rows_, rows_});
    acco::check_cuda(
        cudaMemcpyAsync(host_loss_.as<double>(), losses_.as<double>() + rows_, sizeof(double), cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync");
    acco::check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return *host_loss_.as<double>() / static_cast<double>(shape_.context);
  }

  void backward(float const* p, float* g) {
    const std::size_t w = shape_.width;
    acco::check_cuda(cudaMemsetAsync(of(d_stream_), 0, 4 * rows_ * w, stream_), "cudaMemsetAsync");
    linear_back(of(norm_), p + at_.embedding, of(logits_), of(d_branch_), g + at_.embedding, nullptr, w, shape::vocabulary);
    normalise_back(of(out_), p + at_.norm_gain, of(mean_), of(inverse_), g + at_.norm_gain, g + at_.norm_bias);
    for (std::size_t l = shape_.layers; l-- > 0;) {
      block_activations const& a = blocks_[l];
      block_offsets const& at = at_.blocks[l];
      linear_back(of(a.raised), p + at.down, of(d_stream_), of(d_wide_), g + at.down, g + at.down_bias, 4 * w, w);
      launch(stream_, rows_ * 4 * w, gelu_back{of(a.up), of(a.gate), of(d_wide_)});
      linear_back(of(a.norm2), p + at.up, of(d_wide_), of(d_branch_), g + at.up, g + at.up_bias, w, 4 * w);
      normalise_back(of(a.middle), p + at.norm2_gain, of(a.mean2), of(a.inverse2), g + at.norm2_gain, g + at.norm2_bias);
      linear_back(of(a.mixed), p + at.project, of(d_stream_), of(d_mixed_), g + at.project, g + at.project_bias, w, w);
      launch(stream_, rows_ * shape_.heads,
             attend_backward_scores{of(a.qkv), of(a.share), of(d_mixed_), of(d_score_), shape_.context, w, shape_.heads});
      launch(stream_, rows_ * shape_.heads,
             attend_backward{of(a.qkv), of(a.share), of(d_score_), of(d_mixed_), of(d_wide_), shape_.context, w, shape_.heads});
      linear_back(of(a.norm1), p + at.qkv, of(d_wide_), of(d_branch_), g + at.qkv, g + at.qkv_bias, w, 3 * w);
      normalise_back(of(a.in), p + at.norm1_gain, of(a.mean1), of(a.inverse1), g + at.norm1_gain, g + at.norm1_bias);
    }
    launch(
        stream_, w,
        embed_backward{bytes_.as<unsigned char>(), of(d_stream_), g + at_.embedding, g + at_.position, rows_, shape_.context, w});
  }

  shape shape_;
  gpt_layout at_;
  cudaStream_t stream_;
  products products_;
  std::size_t sequences_ = 0, rows_ = 0;
  std::vector<block_activations> blocks_;
  buffer out_, norm_, mean_, inverse_, logits_, bytes_, losses_;
  buffer d_stream_, d_branch_, d_mixed_, d_wide_, d_score_;
  acco::pinned_buffer host_bytes_, host_loss_;
};

}  // namespace toy_gpt
