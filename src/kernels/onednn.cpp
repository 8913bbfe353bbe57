#include "kernels/onednn.hpp"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/error.hpp"
#include "base/format.hpp"

namespace rocm_sd::onednn {
namespace {

using dnnl::memory;
using dims = memory::dims;
using tag = memory::format_tag;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& thread_stream() {
  static thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

dnnl::post_ops post_ops_of(const ProductSpec& s, const memory::desc& addend) {
  using algo = dnnl::algorithm;
  dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
  const auto eltwise = [&](algo kind, float alpha) { ops.append_eltwise(kind, alpha, 0.0f); };
#else
  const auto eltwise = [&](algo kind, float alpha) { ops.append_eltwise(1.0f, kind, alpha, 0.0f); };
#endif
  if (s.accumulate) ops.append_sum(1.0f);
  if (s.addend) ops.append_binary(algo::binary_add, addend);
  switch (s.act) {
    case Activation::kNone: break;
    case Activation::kSilu: eltwise(algo::eltwise_swish, 1.0f); break;
    case Activation::kGelu: eltwise(algo::eltwise_gelu_erf, 0.0f); break;
    case Activation::kQuickGelu: eltwise(algo::eltwise_swish, 1.702f); break;
    case Activation::kRelu: eltwise(algo::eltwise_relu, 0.0f); break;
  }
  return ops;
}

// The memory descriptors of a problem.
struct Descs {
  memory::desc src, weights, bias, dst, addend;

  Descs(const ProductSpec& s, const memory::desc* layout) {
    const auto type = type_of(s.dtype), out_type = type_of(s.dst_dtype);
    if (s.is_conv()) {
      const int64_t out_h = (s.height + s.pad_top + s.pad_bottom - s.filter_h) / s.stride + 1;
      const int64_t out_w = (s.width + s.pad_left + s.pad_right - s.filter_w) / s.stride + 1;
      src = {{s.batch, s.channels, s.height, s.width}, type, tag::nhwc};
      weights = {{s.out_channels, s.channels, s.filter_h, s.filter_w}, type, tag::any};
      dst = {{s.batch, s.out_channels, out_h, out_w}, out_type, tag::nhwc};
      addend = {dims{s.batch, s.out_channels, out_h, out_w}, type_of(s.addend_dtype), tag::nhwc};
      if (s.bias) bias = {{s.out_channels}, memory::data_type::f32, tag::a};
    } else {
      const int64_t row_stride = s.row_stride ? s.row_stride : s.channels;
      src = {{s.height, s.channels}, type, dims{row_stride, 1}};
      weights = {{s.channels, s.out_channels}, type, tag::any};
      dst = {{s.height, s.out_channels}, out_type, tag::ab};
      addend = {dims{s.height, s.out_channels}, type_of(s.addend_dtype), tag::ab};
      if (s.bias) bias = {{1, s.out_channels}, memory::data_type::f32, tag::ab};
    }
    if (layout) weights = *layout;
  }
};

// A layout as strides of whole blocks and blocks within blocks, the innermost last.
struct Blocking {
  dims strides, inner_blocks, inner_dims;
};

#if DNNL_VERSION_MAJOR >= 3
dnnl::primitive_desc conv_desc(const ProductSpec& s, const Descs& d, const dnnl::primitive_attr& attr) {
  return dnnl::convolution_forward::primitive_desc(
      cpu_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, d.src, d.weights,
      d.bias, d.dst, dims{s.stride, s.stride}, dims{s.pad_top, s.pad_left}, dims{s.pad_bottom, s.pad_right},
      attr, true);
}
dnnl::primitive_desc matmul_desc(const ProductSpec& s, const Descs& d, const dnnl::primitive_attr& attr) {
  if (s.bias) return dnnl::matmul::primitive_desc(cpu_engine(), d.src, d.weights, d.bias, d.dst, attr, true);
  return dnnl::matmul::primitive_desc(cpu_engine(), d.src, d.weights, d.dst, attr, true);
}
std::string layout_text(const memory::desc& md) {
  std::string text;
  for (const auto v : md.get_padded_dims()) text += concat(v, ",");
  for (const auto v : md.get_strides()) text += concat("s", v);
  for (const auto v : md.get_inner_blks()) text += concat("b", v);
  for (const auto v : md.get_inner_idxs()) text += concat("i", v);
  return text;
}
Blocking blocking_of(const memory::desc& md) {
  return {md.get_strides(), md.get_inner_blks(), md.get_inner_idxs()};
}
#else
dnnl::primitive_desc conv_desc(const ProductSpec& s, const Descs& d, const dnnl::primitive_attr& attr) {
  const dnnl::convolution_forward::desc desc(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, d.src, d.weights, d.bias,
      d.dst, dims{s.stride, s.stride}, dims{s.pad_top, s.pad_left}, dims{s.pad_bottom, s.pad_right});
  return dnnl::convolution_forward::primitive_desc(desc, attr, cpu_engine(), true);
}
dnnl::primitive_desc matmul_desc(const ProductSpec& s, const Descs& d, const dnnl::primitive_attr& attr) {
  const dnnl::matmul::desc desc = s.bias ? dnnl::matmul::desc(d.src, d.weights, d.bias, d.dst)
                                         : dnnl::matmul::desc(d.src, d.weights, d.dst);
  return dnnl::matmul::primitive_desc(desc, attr, cpu_engine(), true);
}
std::string layout_text(const memory::desc& md) {
  std::string text;
  const auto& blocking = md.data.format_desc.blocking;
  for (int i = 0; i < md.data.ndims; ++i)
    text += concat(md.data.padded_dims[i], ",s", blocking.strides[i], ",");
  for (int i = 0; i < blocking.inner_nblks; ++i)
    text += concat("b", blocking.inner_blks[i], "i", blocking.inner_idxs[i]);
  return text;
}
Blocking blocking_of(const memory::desc& md) {
  const auto& b = md.data.format_desc.blocking;
  return {dims(b.strides, b.strides + md.data.ndims), dims(b.inner_blks, b.inner_blks + b.inner_nblks),
          dims(b.inner_idxs, b.inner_idxs + b.inner_nblks)};
}
#endif

// Distance of element `index` of dimension `dim` from the first, in elements: the blocks from the innermost
// out, then whole blocks by the stride.
int64_t offset_of(const Blocking& b, int64_t dim, int64_t index) {
  int64_t offset = 0, stride = 1;
  for (size_t i = b.inner_blocks.size(); i-- > 0; stride *= b.inner_blocks[i]) {
    if (b.inner_dims[i] != dim) continue;
    offset += index % b.inner_blocks[i] * stride;
    index /= b.inner_blocks[i];
  }
  return offset + index * b.strides[static_cast<size_t>(dim)];
}

// Weights in a primitive's layout.
class DnnlPack final : public Weight::Pack {
 public:
  DnnlPack(const memory::desc& layout, const Tensor& plain, bool transposed)
      : layout_(layout),
        shape_(plain.shape()),
        dtype_(plain.dtype()),
        transposed_(transposed),
        data_(make_tensor(host_device(), Shape{static_cast<int64_t>(layout.get_size())}, DType::kU8)) {
    memory from(plain_desc(), cpu_engine(), plain.data());
    memory to(layout_, cpu_engine(), data_.data());
    dnnl::reorder(from, to).execute(thread_stream(), from, to);
    thread_stream().wait();
  }
  size_t bytes() const override { return data_.bytes(); }
  Tensor unpack() const override {
    Tensor plain = make_tensor(host_device(), shape_, dtype_);
    memory from(layout_, cpu_engine(), data_.data());
    memory to(plain_desc(), cpu_engine(), plain.data());
    dnnl::reorder(from, to).execute(thread_stream(), from, to);
    thread_stream().wait();
    return plain;
  }
  const memory::desc& layout() const { return layout_; }
  const void* data() const { return data_.data(); }

 private:
  // The plain tensor as the primitive counts its dimensions: a matrix product's weights are [in,out].
  memory::desc plain_desc() const {
    if (transposed_) return {{shape_[1], shape_[0]}, type_of(dtype_), dims{1, shape_[1]}};
    return {dims(shape_.begin(), shape_.end()), type_of(dtype_), tag::oihw};
  }

  memory::desc layout_;
  Shape shape_;
  DType dtype_;
  bool transposed_;
  Tensor data_;
};

class DnnlProduct final : public Product {
 public:
  DnnlProduct(const ProductSpec& spec, const Descs& descs, const dnnl::primitive_desc& desc)
      : conv_(spec.is_conv()),
        channels_(spec.channels),
        out_channels_(spec.out_channels),
        src_(descs.src),
        weights_(desc.weights_desc(0)),
        bias_(descs.bias),
        dst_(descs.dst),
        addend_(descs.addend),
        scratchpad_(desc.scratchpad_desc()),
        has_bias_(spec.bias),
        addend_index_(spec.addend ? (spec.accumulate ? 1 : 0) : -1),
        implementation_(desc.impl_info_str()),
        primitive_(desc) {}

  void execute(const ProductArgs& a) const override {
    const auto at = [](const memory::desc& md, const void* data) {
      return memory(md, cpu_engine(), const_cast<void*>(data));
    };
    std::unordered_map<int, memory> args = {{DNNL_ARG_SRC, at(src_, a.src)},
                                            {DNNL_ARG_WEIGHTS, at(weights_, a.weights)},
                                            {DNNL_ARG_DST, at(dst_, a.dst)}};
    if (has_bias_) args.emplace(DNNL_ARG_BIAS, at(bias_, a.bias));
    if (addend_index_ >= 0)
      args.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(addend_index_) | DNNL_ARG_SRC_1, at(addend_, a.addend));
    if (scratchpad_bytes() > 0) args.emplace(DNNL_ARG_SCRATCHPAD, at(scratchpad_, a.scratchpad));
    primitive_.execute(thread_stream(), args);
    thread_stream().wait();
  }
  size_t scratchpad_bytes() const override { return scratchpad_.get_size(); }
  std::string implementation() const override { return implementation_; }
  std::string weights_layout() const override { return layout_text(weights_); }
  bool takes(const Weight::Pack& pack) const override {
    const auto* own = dynamic_cast<const DnnlPack*>(&pack);
    return own && own->layout() == weights_;
  }
  WeightPlaces weight_places() const override {
    const Blocking blocking = blocking_of(weights_);
    WeightPlaces places;
    places.bytes = weights_.get_size();
    for (int64_t i = 0; i < channels_; ++i) places.rows.push_back(offset_of(blocking, 0, i));
    for (int64_t j = 0; j < out_channels_; ++j) places.columns.push_back(offset_of(blocking, 1, j));
    return places;
  }
  std::shared_ptr<const Weight::Pack> pack(const Tensor& plain) const override {
    return std::make_shared<DnnlPack>(weights_, plain, !conv_);
  }

 private:
  bool conv_;
  int64_t channels_, out_channels_;
  memory::desc src_, weights_, bias_, dst_, addend_, scratchpad_;
  bool has_bias_;
  int addend_index_;  // among the post-ops, or -1
  std::string implementation_;
  dnnl::primitive primitive_;
};

// oneDNN divides a primitive's work by the threads that it sees when the primitive is made: one that is
// executed inside a parallel region must be made with a single one, or part of its work is left undone.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    if (threads) omp_set_num_threads(threads);
  }
  ~ThreadCount() { omp_set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

std::shared_ptr<const Product> make_product(const ProductSpec& s, const memory::desc* layout) {
  const Descs descs(s, layout);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(post_ops_of(s, descs.addend));
  const ThreadCount threads(s.threads);
  const dnnl::primitive_desc desc = s.is_conv() ? conv_desc(s, descs, attr) : matmul_desc(s, descs, attr);
  if (!desc) return nullptr;
  return std::make_shared<DnnlProduct>(s, descs, desc);
}

bool is_slow(const Product& product) { return product.implementation().starts_with("ref"); }

}  // namespace

std::string ProductSpec::key() const {
  return fmt::format("{}x{}x{}x{} {} {}x{} s{} p{},{},{},{} r{} {}>{} {}{}{}{} {} t{}", batch, height, width,
                     channels, out_channels, filter_h, filter_w, stride, pad_top, pad_left, pad_bottom,
                     pad_right, row_stride, dtype, dst_dtype, bias ? "b" : "", accumulate ? "s" : "",
                     addend ? "a" : "", addend_dtype, activation_name(act), threads);
}

std::shared_ptr<const Product> product(const ProductSpec& spec, const Weight::Pack* layout_of) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Product>> cache;
  const auto* pack = dynamic_cast<const DnnlPack*>(layout_of);
  const std::string key = concat(spec.key(), " ", pack ? layout_text(pack->layout()) : std::string());
  const std::lock_guard lock(mutex);
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  std::shared_ptr<const Product> made = pack ? make_product(spec, &pack->layout()) : nullptr;
  if (!made || is_slow(*made)) made = make_product(spec, nullptr);
  require<InternalError>(made != nullptr, "oneDNN ", version(), " has no code for ", spec.key());
  cache.emplace(key, made);
  return made;
}

Prepared prepare(const ProductSpec& spec, const Weight& weight) {
  const auto earlier = weight.find("onednn");
  Prepared out{product(spec, earlier.get()), earlier};
  if (earlier && out.product->takes(*earlier)) return out;
  const std::string key = earlier ? concat("onednn ", out.product->weights_layout()) : std::string("onednn");
  out.pack = weight.packed(key, [&](const Tensor& plain) { return out.product->pack(plain); });
  return out;
}

const void* packed_data(const Weight::Pack& pack) { return dynamic_cast<const DnnlPack&>(pack).data(); }

std::optional<std::string> refuses(DType dtype) {
  if (dtype == DType::kF32) return std::nullopt;
  if (dtype != DType::kBF16) return concat(dtype, " is not a type of its products");
  if (!host_has_bf16()) return "this CPU has no bf16 instructions";
  // Of what ONEDNN_MAX_CPU_ISA leaves: below this level oneDNN 2 has no bf16 code at all.
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  const auto allowed = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  if ((allowed & kNeeded) != kNeeded) return "ONEDNN_MAX_CPU_ISA keeps it from bf16 instructions";
  return std::nullopt;
}

bool bf16_pays() {
  if (refuses(DType::kBF16)) return false;
#if defined(__x86_64__)
  constexpr auto kAmx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kAmx) == kAmx || !__builtin_cpu_is("intel");
#else
  return true;
#endif
}

// Where the process has another oneDNN under the same names, as PyTorch's library brings, which may lack
// sgemm.
static void multiply_plainly(const float* a, const float* b, float* c, int64_t rows, int64_t inner,
                             int64_t columns) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    float* to = c + row * columns;
    std::fill_n(to, columns, 0.0f);
    for (int64_t i = 0; i < inner; ++i) {
      const float factor = a[row * inner + i];
      const float* from = b + i * columns;
      for (int64_t column = 0; column < columns; ++column) to[column] += factor * from[column];
    }
  }
}

void multiply(const float* a, const float* b, float* c, int64_t rows, int64_t inner, int64_t columns) {
  const auto status =
      dnnl::sgemm('N', 'N', rows, columns, inner, 1.0f, a, inner, b, columns, 0.0f, c, columns);
  if (status == dnnl::status::unimplemented) return multiply_plainly(a, b, c, rows, inner, columns);
  require<InternalError>(status == dnnl::status::success, "oneDNN: sgemm [", rows, ",", inner, "] x [", inner,
                         ",", columns, "]: status ", static_cast<int>(status));
}

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

}  // namespace rocm_sd::onednn
