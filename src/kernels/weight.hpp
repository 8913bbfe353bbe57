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

// A parameter as it is stored: in the type that products use (f32, bf16, f16), in 16 bits for products in
// f32, or in 8 bits with a scale for each output (eight_bit.hpp).
struct StoredWeight {
  Tensor values;              // i8 or f8e4m3 where there are scales
  Tensor scales;              // [out] f32, or empty
  DType dtype = DType::kF32;  // that products use
  bool products = false;      // in 8 bits, where a device has such: the other operand is then rounded, too
  bool made_in_run = false;   // by a launch of the same run, which a product must wait for

  StoredWeight() = default;
  StoredWeight(Tensor plain) : values(std::move(plain)), dtype(values.dtype()) {}
  StoredWeight(Tensor eight_bit, Tensor row_scales, DType product_type, bool eight_bit_products = false)
      : values(std::move(eight_bit)),
        scales(std::move(row_scales)),
        dtype(product_type),
        products(eight_bit_products) {}
  size_t bytes() const { return (values ? values.bytes() : 0) + (scales ? scales.bytes() : 0); }
};

// A contiguous tensor on the host in another float type; x itself where it has that type.
Tensor converted(const Tensor& x, DType dtype);

// A matrix [out,in] or filter [out,in,kh,kw] for products in f32, bf16 or f16, stored in that type or in
// fewer bits. Implementations keep their own layouts of it (packed()); once one exists the plain form may be
// dropped, and later layouts are made from a packed one, so that a weight is normally stored once.
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
  explicit Weight(StoredWeight stored)
      : state_(std::make_shared<State>()),
        shape_(stored.values.shape()),
        dtype_(stored.dtype),
        stored_as_(stored.values.dtype()),
        products_(stored.products),
        made_in_run_(stored.made_in_run) {
    state_->plain = std::move(stored.values);
    state_->scales = std::move(stored.scales);
  }
  explicit Weight(Tensor plain) : Weight(StoredWeight(std::move(plain))) {}

  explicit operator bool() const { return state_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }          // that products use
  DType stored_as() const { return stored_as_; }  // dtype(), or what it was loaded as in fewer bits
  // In 16 bits, for products in f32.
  bool is_stored_short() const {
    return stored_as_ != dtype_ && (stored_as_ == DType::kBF16 || stored_as_ == DType::kF16);
  }
  bool products() const { return products_; }        // StoredWeight's
  bool made_in_run() const { return made_in_run_; }  // StoredWeight's
  int64_t dim(int i) const { return shape_[i]; }

  // The plain tensor in dtype(): the original, or made anew if it was dropped or is stored in fewer bits
  // (costly; the reference and tests use it).
  Tensor plain() const;
  // The same as it is stored. Once a layout in dtype() has taken the place of fewer bits, they are gone.
  StoredWeight stored() const;
  // The scales of the outputs while the weight is stored in 8 bits, [out] f32; else empty.
  Tensor scales() const;
  // The layout named key, made by `make` from the plain tensor on first use; thread-safe. Called while
  // planning (or in an eager run), never in a replay. The plain form is dropped afterwards unless this
  // or an earlier layout asked to keep it, because it cannot be unpacked.
  using MakePack = std::function<std::shared_ptr<const Pack>(const Tensor&)>;
  std::shared_ptr<const Pack> packed(const std::string& key, const MakePack& make,
                                     bool keep_plain = false) const;
  // The same made from the values as they are stored: of a weight in fewer bits, those, which unpack() must
  // give back. scales() stay.
  std::shared_ptr<const Pack> packed_as_stored(const std::string& key, const MakePack& make,
                                               bool keep_plain = false) const;
  // The layout named key if it was made already, else null.
  std::shared_ptr<const Pack> find(const std::string& key) const;
  size_t stored_bytes() const;  // plain and packed together

 private:
  struct State {
    std::mutex mutex;
    Tensor plain;             // as stored
    Tensor scales;            // of a weight whose plain form, and first layout, is in 8 bits
    bool keep_plain = false;  // some pack cannot give the plain values back
    std::vector<std::pair<std::string, std::shared_ptr<const Pack>>> packs;
    Tensor values() const { return plain ? plain : packs.front().second->unpack(); }
  };
  Tensor for_products(const Tensor& values) const;  // in dtype(); under the lock
  std::shared_ptr<State> state_;
  Shape shape_;
  DType dtype_ = DType::kF32, stored_as_ = DType::kF32;
  bool products_ = false, made_in_run_ = false;
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
