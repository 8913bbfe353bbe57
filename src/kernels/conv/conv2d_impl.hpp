// What the implementations of conv2d share: the checked problem and the list's functions.
#pragma once

#include "kernels/conv/conv2d.hpp"
#include "kernels/conv/conv2d_op.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {

// y [N,P,Q,K] = epilogue(conv(concat(x, second), w) + b); every tensor but the channel shift contiguous.
struct ConvProblem {
  const Tensor& x;
  const ConvWeight& w;
  const ConvArgs& args;
  const Tensor& y;

  DType dtype() const { return x.dtype(); }
  DType out_dtype() const { return y.dtype(); }  // dtype(), or f32 with bf16
  int64_t batch() const { return x.dim(0); }
  int64_t height() const { return x.dim(1); }  // of x as stored, before doubling
  int64_t width() const { return x.dim(2); }
  int64_t channels() const { return x.dim(3); }
  int64_t second_channels() const { return args.second ? args.second->dim(3) : 0; }
  int64_t filter_h() const { return w.weight.dim(2); }
  int64_t filter_w() const { return w.weight.dim(3); }
  int64_t out_h() const { return y.dim(1); }
  int64_t out_w() const { return y.dim(2); }
  int64_t out_channels() const { return y.dim(3); }
  // Parts of maps' channels, whose pixels lie further apart than they are long.
  bool has_parts() const {
    return !x.is_contiguous() || !y.is_contiguous() || (args.second && !args.second->is_contiguous());
  }

  ConvSpec spec() const;  // what of the problem has a text
  std::string describe() const;
  OpInfo info(const char* impl) const;
};

Refusal conv2d_supports_winograd(const Exec& ex, const ConvProblem& p);
void conv2d_winograd(Exec& ex, const ConvProblem& p);
Refusal conv2d_supports_tiled(const Exec& ex, const ConvProblem& p);
void conv2d_tiled(Exec& ex, const ConvProblem& p);
Refusal conv2d_supports_onednn(const Exec& ex, const ConvProblem& p);
void conv2d_onednn(Exec& ex, const ConvProblem& p);
void conv2d_ref(Exec& ex, const ConvProblem& p);

}  // namespace rocm_sd
