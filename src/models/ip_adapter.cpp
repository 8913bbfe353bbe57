#include "models/ip_adapter.hpp"

#include <algorithm>
#include <charconv>

#include "models/layer_ops.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

constexpr std::string_view kLayers = "ip_adapter.", kKeys = ".to_k_ip.weight";
constexpr int64_t kHeadDim = 64;  // of every published resampler, as in Diffusers

int64_t width_of(const WeightStore& store, const std::string& name, int axis) {
  return dim_of(store, {concat("image_proj.", name)}, axis, 0);
}

// prefix: of the resampler's tensors below image_proj.
void read_resampler(const WeightStore& store, const std::string& prefix, ImageProjectionConfig& out) {
  out.kind = ImageProjectionKind::kResampler;
  out.hidden = width_of(store, prefix + "proj_in.weight", 0);
  out.in_width = width_of(store, prefix + "proj_in.weight", 1);
  out.context_width = width_of(store, prefix + "proj_out.weight", 0);
  out.layers = std::min(extent(store, concat("image_proj.", prefix, "layers.")), 64);
  const std::string query = prefix + "layers.0.0.to_q.weight";
  const int64_t inner = width_of(store, query, 0);
  require<FormatError>(inner > 0 && inner % kHeadDim == 0, store.title(), ": image_proj.", query,
                       ": expected a multiple of ", kHeadDim, " rows, got ", inner);
  out.heads = inner / kHeadDim;
  out.head_dim = kHeadDim;
  out.mlp_width = width_of(store, prefix + "layers.0.1.1.weight", 0);
}

ImageProjectionConfig projection_config(const WeightStore& store) {
  const auto has = [&](const char* name) { return store.has(concat("image_proj.", name)); };
  ImageProjectionConfig out;
  const auto divided = [&](int64_t rows, const char* name) {
    require<FormatError>(out.context_width > 0 && rows > 0 && rows % out.context_width == 0, store.title(),
                         ": image_proj.", name, ": expected a multiple of the norm's ", out.context_width,
                         " rows, got ", rows);
    return rows / out.context_width;
  };
  if (has("proj.weight")) {
    out.in_width = width_of(store, "proj.weight", 1);
    out.context_width = width_of(store, "norm.weight", 0);
    out.tokens = divided(width_of(store, "proj.weight", 0), "proj.weight");
    return out;
  }
  if (has("perceiver_resampler.proj_in.weight")) {
    out.faces = true;
    read_resampler(store, "perceiver_resampler.", out);
    out.face_width = width_of(store, "proj.0.weight", 1);
    out.face_hidden = width_of(store, "proj.0.weight", 0);
    const int64_t rows = width_of(store, "proj.2.weight", 0);
    require<FormatError>(out.hidden > 0 && rows > 0 && rows % out.hidden == 0, store.title(),
                         ": image_proj.proj.2.weight: expected a multiple of perceiver_resampler.proj_in's ",
                         out.hidden, " rows, got ", rows);
    out.tokens = rows / out.hidden;
    require<FormatError>(out.context_width == out.hidden, store.title(),
                         ": image_proj.perceiver_resampler.proj_out.weight: expected ", out.hidden,
                         " rows, got ", out.context_width);
    return out;
  }
  if (has("proj.0.weight")) {
    out.kind = ImageProjectionKind::kFeedForward;
    out.faces = !has("proj.3.weight");
    out.in_width = width_of(store, "proj.0.weight", 1);
    out.hidden = width_of(store, "proj.0.weight", 0);
    out.context_width = width_of(store, out.faces ? "norm.weight" : "proj.3.weight", 0);
    out.tokens = divided(width_of(store, "proj.2.weight", 0), "proj.2.weight");
    require<FormatError>(out.faces || out.tokens == 1, store.title(), ": image_proj.proj.2.weight: expected ",
                         out.context_width, " rows, got ", out.tokens * out.context_width);
    return out;
  }
  require<FormatError>(
      has("latents.weight") && has("proj_in.weight"), store.title(),
      ": expected image_proj.proj.weight (plain), image_proj.proj.0.weight (Full, FaceID) or "
      "image_proj.latents (Plus), found none of them");
  out.tokens = width_of(store, "latents.weight", 0);
  read_resampler(store, "", out);
  return out;
}

}  // namespace

void IpAdapterConfig::read_name(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ' && c != '.')
      letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  projection.shortcut = projection.has_both() && letters.find("plusv2") != std::string::npos;
}

int64_t IpAdapterConfig::tokens(int64_t states) const {
  const bool each = projection.kind == ImageProjectionKind::kFeedForward && !projection.faces;
  return each ? states : projection.tokens;
}

IpAdapterConfig ip_adapter_config(const WeightStore& store) {
  IpAdapterConfig out{projection_config(store), {}, {}};
  for (const auto& [name, tensor] : store.weights()) {
    if (!name.starts_with(kLayers) || !name.ends_with(kKeys)) continue;
    const std::string_view digits =
        std::string_view(name).substr(kLayers.size(), name.size() - kLayers.size() - kKeys.size());
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    require<FormatError>(error == std::errc() && end == digits.data() + digits.size() && number < 10000,
                         store.title(), ": ", printable(name), ": expected ip_adapter.NUMBER", kKeys);
    out.numbers.push_back(number);
  }
  std::ranges::sort(out.numbers);
  for (const int64_t number : out.numbers)
    out.widths.push_back(dim_of(store, {concat(kLayers, number, kKeys)}, 0, 0));
  require<FormatError>(!out.numbers.empty(), store.title(), ": no tensor ip_adapter.NUMBER", kKeys);
  return out;
}

std::string ip_adapter_refusal(const IpAdapterConfig& adapter, const UNet& unet) {
  std::vector<ImageAttention> layers = unet.image_attentions();
  std::ranges::sort(layers, {}, &ImageAttention::number);
  const int64_t context = unet.config().context_width();
  if (adapter.projection.context_width != context)
    return concat("its tokens are ", adapter.projection.context_width, " wide, the model's text ", context);
  if (adapter.numbers.size() != layers.size())
    return concat("it has ", adapter.numbers.size(), " cross attentions, the model ", layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (adapter.numbers[i] != layers[i].number)
      return concat("its layer ", i, " has the number ", adapter.numbers[i], ", expected ", layers[i].number);
    if (adapter.widths[i] != layers[i].width)
      return concat("its layer ", adapter.numbers[i], " is ", adapter.widths[i], " wide, the model's ",
                    layers[i].name, " ", layers[i].width);
  }
  return {};
}

IpAdapter::IpAdapter(const IpAdapterConfig& config, const std::vector<ImageAttention>& layers)
    : config_(config), layers_(layers), projection_(config.projection) {
  for (const ImageAttention& layer : layers_)
    keys_values_.push_back(StackedLinear(config.projection.context_width,
                                         {{"to_k_ip", layer.width}, {"to_v_ip", layer.width}}, false,
                                         "to_kv_ip"));
}

void IpAdapter::load(Device& device, const ParameterSource& source, DType compute, DType stored) {
  dtype_ = compute;
  load_parameters(*this, device, source, compute, {.short_for_f32 = stored != compute});
}

void IpAdapter::visit(Visitor& v) {
  v("image_proj", projection_);
  for (size_t i = 0; i < layers_.size(); ++i)
    v(concat(kLayers.substr(0, kLayers.size() - 1), ".", layers_[i].number), keys_values_[i]);
}

Tensor IpAdapter::keys_values(Exec& ex, const Tensor& tokens, size_t layer) const {
  return linear(ex, tokens, keys_values_.at(layer));
}

}  // namespace rocm_sd
