#include "pipeline/ip_request.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "pipeline/clip_pixels.hpp"
#include "pipeline/request_guidance.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {
namespace {

constexpr double kMaxWeight = 10;
constexpr size_t kMaxImages = 16;

// The options that an adapter without a file has, for the message.
std::string options_of(const IpAdapterUse& use) {
  std::string out;
  const auto note = [&](bool given, const char* name) {
    if (given) out += concat(out.empty() ? "" : ", ", name);
  };
  note(!use.images.empty() || !use.each.empty() || use.embeds, "ip-image, ip-embeds");
  note(use.weight.has_value(), "ip-weight");
  note(use.start.has_value(), "ip-start");
  note(use.end.has_value(), "ip-end");
  note(!use.masks.empty(), "ip-mask");
  note(use.image_encoder.has_value(), "image-encoder");
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += concat(i ? "," : "", shape[i]);
  return out + "]";
}

// Of an adapter: the axes behind those of conditions and images.
std::vector<int64_t> row_of(const ImageEmbeds& embeds, bool states) {
  const size_t axes = states ? 2 : 1;
  return {embeds.shape.end() - static_cast<ptrdiff_t>(std::min(axes, embeds.shape.size())),
          embeds.shape.end()};
}

// What one image of the batch sees.
void check_images(const std::vector<Image>& images, const std::string& name) {
  require<UsageError>(images.size() <= kMaxImages, "ip-image: ", name, ": at most ", kMaxImages,
                      " images, got ", images.size());
  for (const Image& image : images)
    require<UsageError>(image.width > 0 && image.height > 0, "ip-image: ", name, ": has no pixels");
}

// What it sees: images, those of each image of the batch, or embeddings.
void check_sources(const IpAdapterUse& use, const GenerateRequest& r, const std::string& name, bool tiled) {
  const int images = (use.images.empty() ? 0 : 1) + (use.each.empty() ? 0 : 1);
  require<UsageError>(images + (use.embeds ? 1 : 0) > 0, "ip-image, ip-embeds: ", name,
                      ": expected one of them, got none");
  require<UsageError>(images < 2 && (use.each.empty() || !use.embeds), "ip-image, ip-embeds: ", name,
                      ": expected one of them, got several");
  check_images(use.images, name);
  if (use.each.empty()) return;
  require<UsageError>(use.each.size() == static_cast<size_t>(r.batch), "ip-image: ", name,
                      ": expected images for each of the ", r.batch, " images of the batch, got those of ",
                      use.each.size());
  const size_t each = use.each.front().size();
  require<UsageError>(each > 0, "ip-image: ", name, ": expected images, got none");
  require<UsageError>(!tiled, "ip-image: images of their own for each of the batch do not go with tile-size");
  for (const std::vector<Image>& images : use.each) {
    require<UsageError>(images.size() == each, "ip-image: ", name,
                        ": expected as many for each image of the batch, got ", each, " and ", images.size());
    check_images(images, name);
  }
}

}  // namespace

size_t images_of(const IpAdapterUse& use) {
  return use.each.empty() ? use.images.size() : use.each.front().size();
}

std::vector<ResolvedIpAdapter> resolve_ip_adapters(const GenerateRequest& r, bool tiled) {
  std::vector<ResolvedIpAdapter> out;
  size_t models = 0;
  for (const IpAdapterUse& use : r.ip_adapters) models += use.model.empty() ? 0 : 1;
  require<UsageError>(r.ip_adapters.size() <= kMaxIpAdapters, "ip-adapter: at most ", kMaxIpAdapters,
                      " at once, got ", r.ip_adapters.size());
  for (const IpAdapterUse& use : r.ip_adapters) {
    require<UsageError>(!use.model.empty(), options_of(use), ": given ", r.ip_adapters.size(),
                        " times in all for ", models,
                        " --ip-adapter: the first belongs to the first, and so on");
    const std::string name = printable(use.model);
    check_sources(use, r, name, tiled);
    ResolvedIpAdapter resolved;
    resolved.model = use.model;
    resolved.encoder = use.image_encoder.value_or("");
    resolved.weight = use.weight.value_or(1);
    require_range(resolved.weight, -kMaxWeight, kMaxWeight, "ip-weight");
    resolved.start = use.start.value_or(0);
    resolved.end = use.end.value_or(1);
    require_part(resolved.start, resolved.end, "ip");
    resolved.images = static_cast<int64_t>(images_of(use));  // of embeddings: image_unit()
    require<UsageError>(use.masks.empty() || images_of(use) == 0 || use.masks.size() == images_of(use),
                        "ip-mask: ", name, ": expected one for each of the ", images_of(use), " images, got ",
                        use.masks.size());
    require<UsageError>(use.masks.empty() || !tiled, "ip-mask: does not go with tile-size");
    out.push_back(std::move(resolved));
  }
  return out;
}

ImageEmbeds load_image_embeds(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  require<FormatError>(file->entries().size() == 1, printable(path),
                       ": expected one tensor of embeddings, found ", file->entries().size());
  const TensorEntry& entry = file->entries().front();
  constexpr int64_t kMaxValues = int64_t{1} << 26;
  require<FormatError>(is_float(entry.dtype) && entry.shape.rank() >= 2 && entry.shape.rank() <= 4 &&
                           entry.numel() > 0 && entry.numel() <= kMaxValues,
                       printable(path), ": ", printable(entry.name),
                       ": expected embeddings [images,width] or [2,images,width], got ", entry.shape, " ",
                       entry.dtype);
  ImageEmbeds out;
  for (int axis = 0; axis < entry.shape.rank(); ++axis) out.shape.push_back(entry.shape[axis]);
  std::vector<char> stored(entry.bytes);
  file->read(entry, 0, entry.bytes, stored.data());
  out.values.resize(static_cast<size_t>(entry.numel()));
  convert_elements(stored.data(), entry.dtype, out.values.data(), DType::kF32, entry.numel());
  const auto bad = std::ranges::count_if(out.values, [](float v) { return !std::isfinite(v); });
  require<FormatError>(bad == 0, printable(path), ": ", printable(entry.name), ": ", bad, " of ",
                       out.values.size(), " values are not finite");
  return out;
}

std::vector<float> both_embeds(const ImageEmbeds& embeds, size_t half) {
  std::vector<float> out = embeds.values;
  if (out.size() == half) out.insert(out.begin(), half, 0.0f);
  return out;
}

namespace {

// The shape and values of embeddings, and what follows of them.
void check_embeds(const ResolvedRequest& r, const IpAdapterUse& use, const LoadedImageModel& adapter,
                  ImageUnit& out) {
  const ImageProjectionConfig& reads = adapter.adapter()->config().projection;
  const auto bad = std::ranges::count_if(use.embeds->values, [](float v) { return !std::isfinite(v); });
  require<UsageError>(bad == 0, "ip-embeds: ", printable(adapter.name), ": ", bad, " of ",
                      use.embeds->values.size(), " values are not finite");
  const std::vector<int64_t>& shape = use.embeds->shape;
  const bool both = reads.has_both();
  const bool states = reads.reads_states() && !both;
  const int64_t width = both ? reads.face_width : reads.in_width;
  const std::vector<int64_t> row = row_of(*use.embeds, states);
  const size_t leading = shape.size() - row.size();
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  const bool fits = !row.empty() && (leading == 1 || (leading == 2 && (shape[0] == 1 || shape[0] == 2))) &&
                    row.back() == width && count == static_cast<int64_t>(use.embeds->values.size()) &&
                    shape[leading - 1] >= 1 && shape[leading - 1] <= static_cast<int64_t>(kMaxImages);
  require<UsageError>(fits, "ip-embeds: ", printable(adapter.name), ": expected ",
                      states ? "states [images,tokens," : "embeddings [images,", width,
                      "], or a pair of them with those of the negative prompt first, got ",
                      shape_text(shape));
  if (both) {
    require<UsageError>(shape[leading - 1] == out.images, "ip-embeds: ", printable(adapter.name),
                        ": expected a face's embedding for each of the ", out.images, " images, got ",
                        shape[leading - 1]);
    return;
  }
  out.images = shape[leading - 1];
  out.states = states ? row.front() : 1;
  const bool pair = leading == 2 && shape[0] == 2;
  require<UsageError>(pair || !states || !r.uses_negative(), "ip-embeds: ", printable(adapter.name),
                      " reads states: expected those of a black image, for the negative prompt, before the "
                      "others: [2,images,tokens,",
                      reads.in_width, "], got ", shape_text(shape));
  require<UsageError>(use.masks.empty() || use.masks.size() == static_cast<size_t>(out.images),
                      "ip-mask: ", printable(adapter.name), ": expected one for each of the ", out.images,
                      " embeddings, got ", use.masks.size());
}

}  // namespace

ImageUnit image_unit(const ResolvedRequest& r, size_t index, const LoadedImageModel& adapter,
                     const LoadedImageModel* encoder) {
  const IpAdapterUse& use = r.request.ip_adapters.at(index);
  const ImageProjectionConfig& reads = adapter.adapter()->config().projection;
  const bool states = reads.reads_states();
  ImageUnit out{&adapter, encoder, static_cast<int64_t>(images_of(use)), 1};
  out.sets = static_cast<int64_t>(std::max<size_t>(use.each.size(), 1));
  if (encoder && states) out.states = encoder->encoder()->config().tokens();
  if (!use.embeds) return out;
  check_embeds(r, use, adapter, out);
  return out;
}
std::vector<ImageSetting> image_settings(const ResolvedRequest& r) {
  std::vector<ImageSetting> out;
  for (size_t i = 0; i < r.ip_adapters.size(); ++i) {
    const ResolvedIpAdapter& use = r.ip_adapters[i];
    ImageSetting setting{use.weight, use.start, use.end, {}};
    for (const Image& mask : r.request.ip_adapters[i].masks)
      setting.masks.push_back(image_mask(mask, static_cast<int>(r.width), static_cast<int>(r.height)));
    out.push_back(std::move(setting));
  }
  return out;
}

std::string describe_ip_adapter(const ResolvedIpAdapter& use, const LoadedImageModel& model) {
  std::string out = concat("Model: ", model.name);
  if (!model.hash.empty()) out += concat(" [", model.hash, "]");
  return out + concat(", Weight: ", use.weight, ", Start: ", use.start, ", End: ", use.end);
}

}  // namespace rocm_sd
