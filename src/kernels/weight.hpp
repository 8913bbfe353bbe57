// Parameters of ops: the checkpoint's values and the layouts that implementations made of them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/tensor.hpp"

namespace rocm_sd {

// A matrix [out,in] or filter [out,in,kh,kw] in the type that products use (f32, bf16 or f16).
// Implementations keep their own layouts of it (packed()); once one exists the plain form may be dropped, and
// later layouts are made from a packed one, so that a weight is normally held once.
class Weight {
 public:
  // A layout of an implementation: knows its size and how to give the plain values back.
  struct Pack {
    virtual ~Pack() = default;
    virtual size_t bytes() const = 0;
    // The values in the plain layout, freshly allocated.
    virtual Tensor unpack() const = 0;
  };

  Weight() = default;
  explicit Weight(Tensor plain)
      : state_(std::make_shared<State>()), shape_(plain.shape()), dtype_(plain.dtype()) {
    state_->plain = std::move(plain);
  }

  explicit operator bool() const { return state_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t dim(int i) const { return shape_[i]; }

  // The plain tensor: the original, or unpacked anew if it was dropped (costly; the reference and tests use
  // it).
  Tensor plain() const;
  // The layout named key, made by `make` from the plain tensor on first use; thread-safe. Called while
  // planning (or in an eager run), never in a replay. The plain form is dropped afterwards unless this
  // or an earlier layout asked to keep it, because it cannot be unpacked.
  std::shared_ptr<const Pack> packed(const std::string& key,
                                     const std::function<std::shared_ptr<const Pack>(const Tensor&)>& make,
                                     bool keep_plain = false) const;
  // The layout named key if it was made already, else null.
  std::shared_ptr<const Pack> find(const std::string& key) const;
  size_t bytes_held() const;  // plain and packed together

 private:
  struct State {
    std::mutex mutex;
    Tensor plain;
    bool keep_plain = false;  // some pack cannot give the plain values back
    std::vector<std::pair<std::string, std::shared_ptr<const Pack>>> packs;
  };
  std::shared_ptr<State> state_;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

struct LinearWeight {
  Weight weight;               // [out,in]
  std::optional<Tensor> bias;  // [out] f32
};
struct ConvWeight {
  Weight weight;               // [out,in,kh,kw]
  std::optional<Tensor> bias;  // [out] f32
};
struct NormWeight {
  Tensor gain, bias;  // [C] f32
};
struct EmbeddingWeight {
  Tensor table;  // [rows,C] f32, bf16 or f16
};

}  // namespace rocm_sd
