#include "models/adapted_source.hpp"

#include <algorithm>
#include <cmath>

#include "base/dtype.hpp"
#include "kernels/onednn.hpp"

namespace rocm_sd {
namespace {

using Values = std::vector<float>;

// a [rows,inner] b [inner,columns] -> [rows,columns]
Values product(const Values& a, const Values& b, int64_t rows, int64_t inner, int64_t columns) {
  Values out(static_cast<size_t>(rows * columns));
  onednn::multiply(a.data(), b.data(), out.data(), rows, inner, columns);
  return out;
}

// Tucker's form of a filter (LyCORIS, "tucker"): t [ra,rb,pixels], a [ra,out], b [rb,in] -> [out,in,pixels].
Values tucker(const Values& t, const Values& a, const Values& b, int64_t ra, int64_t rb, int64_t out,
              int64_t in, int64_t pixels) {
  Values inner(static_cast<size_t>(ra * in * pixels), 0.0f);  // [ra,in,pixels]
  for (int64_t i = 0; i < ra; ++i)
    for (int64_t j = 0; j < rb; ++j)
      for (int64_t c = 0; c < in; ++c)
        for (int64_t k = 0; k < pixels; ++k)
          inner[static_cast<size_t>((i * in + c) * pixels + k)] +=
              b[static_cast<size_t>(j * in + c)] * t[static_cast<size_t>((i * rb + j) * pixels + k)];
  Values rows(static_cast<size_t>(out * ra));  // a transposed: [out,ra]
  for (int64_t i = 0; i < ra; ++i)
    for (int64_t o = 0; o < out; ++o)
      rows[static_cast<size_t>(o * ra + i)] = a[static_cast<size_t>(i * out + o)];
  return product(rows, inner, out, ra, in * pixels);
}

// The change before its scale, [out,in,pixels].
class Change {
 public:
  Change(const AdapterFile& file, const AdapterModule& module, const Shape& shape)
      : file_(file),
        module_(module),
        out_(shape[0]),
        in_(shape.rank() > 1 ? shape[1] : 1),
        pixels_(shape.numel() / out_ / in_) {}

  Values operator()() const {
    switch (module_.kind) {
      case AdapterKind::kLora: return lora();
      case AdapterKind::kLoha: return loha();
      case AdapterKind::kLokr: return lokr();
      case AdapterKind::kDifference: return values("diff");
      case AdapterKind::kIa3: break;  // a factor, not a sum
    }
    return {};
  }

 private:
  Values values(const std::string& role) const { return file_.values(module_, role); }
  int64_t rows(const std::string& role) const { return file_.shape(module_, role)[0]; }
  int64_t columns(const std::string& role) const { return file_.shape(module_, role).numel() / rows(role); }

  // up [out,r] down [r,in*pixels]; with a middle filter (LoCon by CP decomposition) mid [r,r,pixels].
  Values lora() const {
    const int64_t rank = rows("down");
    if (!module_.has("mid")) return product(values("up"), values("down"), out_, rank, in_ * pixels_);
    Values up = values("up");
    Values across(up.size());  // [r,out]
    for (int64_t o = 0; o < out_; ++o)
      for (int64_t r = 0; r < rank; ++r)
        across[static_cast<size_t>(r * out_ + o)] = up[static_cast<size_t>(o * rank + r)];
    return tucker(values("mid"), across, values("down"), rank, rank, out_, in_, pixels_);
  }
  Values half(const char* a, const char* b, const char* t) const {
    if (module_.has(t)) return tucker(values(t), values(a), values(b), rows(a), rows(b), out_, in_, pixels_);
    return product(values(a), values(b), out_, rows(b), in_ * pixels_);
  }
  Values loha() const {
    Values first = half("hada_w1_a", "hada_w1_b", "hada_t1");
    const Values second = half("hada_w2_a", "hada_w2_b", "hada_t2");
    for (size_t i = 0; i < first.size(); ++i) first[i] *= second[i];
    return first;
  }
  // Kronecker's product of w1 [o1,i1] and w2 [o2,i2,pixels].
  Values lokr() const {
    const bool whole1 = module_.has("lokr_w1"), whole2 = module_.has("lokr_w2");
    const int64_t o1 = rows(whole1 ? "lokr_w1" : "lokr_w1_a"), o2 = out_ / o1;
    const int64_t i1 = columns(whole1 ? "lokr_w1" : "lokr_w1_b"), i2 = in_ / i1;
    const Values w1 = whole1 ? values("lokr_w1")
                             : product(values("lokr_w1_a"), values("lokr_w1_b"), o1, rows("lokr_w1_b"), i1);
    Values w2;
    if (whole2)
      w2 = values("lokr_w2");
    else if (module_.has("lokr_t2"))
      w2 = tucker(values("lokr_t2"), values("lokr_w2_a"), values("lokr_w2_b"), rows("lokr_w2_a"),
                  rows("lokr_w2_b"), o2, i2, pixels_);
    else
      w2 = product(values("lokr_w2_a"), values("lokr_w2_b"), o2, rows("lokr_w2_b"), i2 * pixels_);
    Values out(static_cast<size_t>(out_ * in_ * pixels_));
    float* to = out.data();
    for (int64_t a = 0; a < o1; ++a)
      for (int64_t b = 0; b < o2; ++b)
        for (int64_t c = 0; c < i1; ++c) {
          const float factor = w1[static_cast<size_t>(a * i1 + c)];
          const float* from = w2.data() + b * i2 * pixels_;
          for (int64_t k = 0; k < i2 * pixels_; ++k) *to++ = factor * from[k];
        }
    return out;
  }

  const AdapterFile& file_;
  const AdapterModule& module_;
  int64_t out_, in_, pixels_;
};

// weight := weight * (1 + strength * v), v for each output or each input.
void scale_by_vector(const Values& v, bool on_input, double strength, const Shape& shape, float* weight) {
  const int64_t out = shape[0], in = shape.rank() > 1 ? shape[1] : 1, pixels = shape.numel() / out / in;
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i) {
      const auto factor = static_cast<float>(1 + strength * v[static_cast<size_t>(on_input ? i : o)]);
      for (int64_t k = 0; k < pixels; ++k) weight[(o * in + i) * pixels + k] *= factor;
    }
}

// DoRA (Liu et al. 2024, equation 5): the changed weight gets the magnitudes that were learned, one for each
// output, or for each input. Strength moves from the weight to that result.
void decompose(const Values& magnitude, bool on_input, const Values& changed, double strength,
               const Shape& shape, float* weight) {
  const int64_t out = shape[0], in = shape.rank() > 1 ? shape[1] : 1, pixels = shape.numel() / out / in;
  std::vector<double> squares(magnitude.size(), 0.0);
  const auto index = [&](int64_t o, int64_t i) { return static_cast<size_t>(on_input ? i : o); };
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t k = 0; k < pixels; ++k) {
        const double v = changed[static_cast<size_t>((o * in + i) * pixels + k)];
        squares[index(o, i)] += v * v;
      }
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i) {
      const double norm = std::sqrt(squares[index(o, i)]);
      const double factor = norm > 0 ? magnitude[index(o, i)] / norm : 0.0;
      for (int64_t k = 0; k < pixels; ++k) {
        const auto at = static_cast<size_t>((o * in + i) * pixels + k);
        weight[at] += static_cast<float>(strength * (changed[at] * factor - weight[at]));
      }
    }
}

}  // namespace

void merge_adapter(const AdapterFile& file, const AdapterModule& module, double strength, const Shape& shape,
                   float* weight) {
  if (strength == 0) return;
  if (module.kind == AdapterKind::kIa3)
    return scale_by_vector(file.values(module, "ia3"), module.on_input, strength, shape, weight);
  Values change = Change(file, module, shape)();
  const auto scale = static_cast<float>(module.scale * (module.is_dora() ? 1.0 : strength));
  if (!module.is_dora()) {
    for (size_t i = 0; i < change.size(); ++i) weight[i] += scale * change[i];
    return;
  }
  for (size_t i = 0; i < change.size(); ++i) change[i] = weight[i] + scale * change[i];
  decompose(file.values(module, "magnitude"), module.magnitude_on_input, change, strength, shape, weight);
}

const std::vector<float>& AdaptedSource::merged(const std::string& name, const Shape& shape) const {
  if (last_name_ == name) return last_;
  last_name_.clear();
  last_.resize(static_cast<size_t>(shape.numel()));
  if (originals_) originals_->keep(name, shape);
  base_.read(name, shape, DType::kF32, last_.data());
  for (const AdapterUse& use : uses_)
    if (const AdapterModule* module = use.module(component_, name))
      merge_adapter(*use.file, *module, use.strength_of(*module), shape, last_.data());
  last_name_ = name;
  return last_;
}

void AdaptedSource::read(const std::string& name, const Shape& shape, DType dtype, void* dst) const {
  read_part(name, shape, 0, shape.numel(), dtype, dst);
}

void AdaptedSource::read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count,
                              DType dtype, void* dst) const {
  if (!changes(name)) {
    if (count == shape.numel()) return base_.read(name, shape, dtype, dst);
    return base_.read_part(name, shape, begin, count, dtype, dst);
  }
  const std::lock_guard lock(mutex_);
  convert_elements(merged(name, shape).data() + begin, DType::kF32, dst, dtype, count);
}

Tensor AdaptedSource::ready(const ParameterSlot& slot, DType dtype, Device& device) const {
  if (merge_) {
    if (Tensor made = merge_->ready(slot, dtype, device)) return made;
    if (originals_) originals_->keep_from(slot, merge_->base());
  }
  for (const ParameterSlot::Part& part : slot.parts)
    if (changes(part.name)) return {};
  return base_.ready(slot, dtype, device);
}

}  // namespace rocm_sd
