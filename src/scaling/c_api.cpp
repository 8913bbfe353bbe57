// The C interface over the C++ one: no exception crosses it, every failure leaves a message.
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "pipeline/options.hpp"
#include "rocm_sd/multi.hpp"
#include "rocm_sd/rocm_sd.h"
#include "scaling/c_call.hpp"

using rocm_sd::UsageError;
using namespace rocm_sd::c_call;

struct rocm_sd_pipeline {
  rocm_sd::MultiPipeline pipeline;
};

namespace {

void apply(rocm_sd::OptionTargets targets, const rocm_sd_option* options) {
  require_argument(options != nullptr, "options");
  for (; options->name; ++options) {
    require_argument(options->value != nullptr, options->name);
    rocm_sd::set_option(targets, options->name, options->value);
  }
}

void check_size(const char* what, int width, int height) {
  constexpr int kMax = 1 << 15;
  if (width <= 0 || height <= 0 || width > kMax || height > kMax)
    throw UsageError(std::string("inputs: ") + what + ": width and height must be 1.." +
                     std::to_string(kMax));
}

rocm_sd::Image grey_image(int width, int height, const uint8_t* grey) {
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  rocm_sd::Image image{width, height, std::vector<uint8_t>(3 * pixels), {}};
  for (size_t i = 0; i < 3 * pixels; ++i) image.rgb[i] = grey[i / 3];
  return image;
}

// Copies what the caller has in memory into the request.
void require_one_each(const char* what, size_t count, size_t controls) {
  if (count > controls)
    throw UsageError(std::string("inputs: ") + what + ": " + std::to_string(count) + " pictures for " +
                     std::to_string(controls) + " \"control\" options");
}

// Nothing where there are no pixels.
std::optional<rocm_sd::Image> copy_of(const rocm_sd_control_image& image, const char* what) {
  if (!image.rgb) return std::nullopt;
  check_size(what, image.width, image.height);
  const size_t pixels = static_cast<size_t>(image.width) * static_cast<size_t>(image.height);
  return rocm_sd::Image{image.width, image.height, {image.rgb, image.rgb + 3 * pixels}, {}};
}

void take_control_images(const rocm_sd_inputs& in, rocm_sd::GenerateRequest& request) {
  const size_t each = std::max<size_t>(in.control_images_each, 1), count = in.control_images_count;
  require_one_each("control_images", count / each + (count % each ? 1 : 0), request.controls.size());
  require_one_each("control_masks", in.control_masks_count, request.controls.size());
  require_argument(in.control_images || count == 0, "control_images");
  require_argument(in.control_masks || in.control_masks_count == 0, "control_masks");
  for (size_t i = 0; i < count; ++i) {
    std::optional<rocm_sd::Image> image = copy_of(in.control_images[i], "control image");
    if (!image) continue;
    rocm_sd::ControlUse& use = request.controls[i / each];
    if (each > 1)
      use.images.push_back(std::move(*image));
    else
      use.image = std::move(image);
  }
  for (size_t i = 0; i < in.control_masks_count; ++i)
    if (auto mask = copy_of(in.control_masks[i], "control mask")) request.controls[i].mask = std::move(mask);
}

std::vector<rocm_sd::Image> copies_of(const rocm_sd_control_image* images, size_t count, const char* what) {
  require_argument(images || count == 0, what);
  std::vector<rocm_sd::Image> out;
  for (size_t i = 0; i < count; ++i)
    if (std::optional<rocm_sd::Image> image = copy_of(images[i], what)) out.push_back(std::move(*image));
  return out;
}

rocm_sd::ImageEmbeds copy_of(const rocm_sd_ip_image& one) {
  constexpr int kMaxRank = 4;
  constexpr int64_t kMaxValues = int64_t{1} << 26;
  require_argument(one.embeds_shape && one.embeds_rank > 0 && one.embeds_rank <= kMaxRank, "embeds_shape");
  rocm_sd::ImageEmbeds out;
  int64_t count = 1;
  for (int axis = 0; axis < one.embeds_rank; ++axis) {
    const int64_t n = one.embeds_shape[axis];
    if (n < 1 || n > kMaxValues / count)
      throw UsageError("inputs: ip image embeds: a dimension of " + std::to_string(n));
    out.shape.push_back(n);
    count *= n;
  }
  out.values.assign(one.embeds, one.embeds + count);
  return out;
}

// All of an adapter's images in a row, as those of each image of the batch.
void split_images(rocm_sd::IpAdapterUse& use, size_t each) {
  if (use.images.empty() || use.images.size() % each != 0)
    throw UsageError("inputs: ip_images: expected a multiple of " + std::to_string(each) + " images, got " +
                     std::to_string(use.images.size()));
  for (size_t i = 0; i < use.images.size(); ++i) {
    if (i % each == 0) use.each.emplace_back();
    use.each.back().push_back(std::move(use.images[i]));
  }
  use.images.clear();
}

void take_ip_images(const rocm_sd_inputs& in, rocm_sd::GenerateRequest& request) {
  require_argument(in.ip_images || in.ip_images_count == 0, "ip_images");
  if (in.ip_images_count > request.ip_adapters.size())
    throw UsageError("inputs: ip_images: " + std::to_string(in.ip_images_count) + " for " +
                     std::to_string(request.ip_adapters.size()) + " \"ip-adapter\" options");
  for (size_t i = 0; i < in.ip_images_count; ++i) {
    const rocm_sd_ip_image& one = in.ip_images[i];
    rocm_sd::IpAdapterUse& use = request.ip_adapters[i];
    if (one.images_count > 0) use.images = copies_of(one.images, one.images_count, "ip image");
    if (one.images_each > 0) split_images(use, one.images_each);
    if (one.masks_count > 0) use.masks = copies_of(one.masks, one.masks_count, "ip mask");
    if (one.embeds) use.embeds = copy_of(one);
  }
}

void take(const rocm_sd_inputs& in, rocm_sd::GenerateRequest& request) {
  if (in.init_rgb || in.mask) {
    check_size("picture", in.width, in.height);
    const size_t pixels = static_cast<size_t>(in.width) * static_cast<size_t>(in.height);
    if (in.init_rgb)
      request.init_image = rocm_sd::Image{in.width, in.height, {in.init_rgb, in.init_rgb + 3 * pixels}, {}};
    if (in.mask) request.mask = grey_image(in.width, in.height, in.mask);
  }
  if (in.depth) {
    check_size("depth", in.depth_width, in.depth_height);
    request.depth = grey_image(in.depth_width, in.depth_height, in.depth);
  }
  take_control_images(in, request);
  take_ip_images(in, request);
  if (in.init_latents) request.init_latents.assign(in.init_latents, in.init_latents + in.init_latents_count);
  if (in.initial_noise)
    request.initial_noise.assign(in.initial_noise, in.initial_noise + in.initial_noise_count);
}

}  // namespace

extern "C" {

int rocm_sd_abi_version(void) { return ROCM_SD_ABI_VERSION; }

const char* rocm_sd_version(void) {
  static const std::string text = rocm_sd::version();
  return text.c_str();
}

const char* rocm_sd_last_error(void) { return last_error().c_str(); }

rocm_sd_status rocm_sd_create(const rocm_sd_option* options, const rocm_sd_callbacks* callbacks,
                              rocm_sd_pipeline** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out != nullptr, "out");
    rocm_sd::LoadOptions load;
    apply({.load = &load}, options);
    *out = new rocm_sd_pipeline{rocm_sd::MultiPipeline::load(load, adapt(callbacks))};
  });
}

rocm_sd_status rocm_sd_create_live(const rocm_sd_option* options, const rocm_sd_tensor* tensors, size_t count,
                                   const rocm_sd_callbacks* callbacks, rocm_sd_pipeline** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out && (tensors || count == 0), "out and tensors");
    rocm_sd::LoadOptions load;
    apply({.load = &load}, options);
    for (size_t i = 0; i < count; ++i) {
      const rocm_sd_tensor& t = tensors[i];
      require_argument(t.component && t.name && t.dtype && t.shape && t.data && t.rank >= 0, "tensors");
      load.live.push_back({t.component, t.name, t.dtype, {t.shape, t.shape + t.rank}, t.data});
    }
    *out = new rocm_sd_pipeline{rocm_sd::MultiPipeline::load(load, adapt(callbacks))};
  });
}

void rocm_sd_free(rocm_sd_pipeline* pipeline) { delete pipeline; }

int rocm_sd_drawers(rocm_sd_pipeline* pipeline) {
  int working = 0;
  (void)guarded([&] {
    require_argument(pipeline, "pipeline");
    for (const rocm_sd::DrawerInfo& drawer : pipeline->pipeline.drawers())
      working += drawer.taken_out.empty() ? 1 : 0;
  });
  return working;
}

rocm_sd_status rocm_sd_plan(rocm_sd_pipeline* pipeline, const rocm_sd_option* options, uint64_t* bytes) {
  return guarded([&] {
    require_argument(pipeline && bytes, "pipeline and bytes");
    rocm_sd::GenerateRequest request = pipeline->pipeline.default_request();
    apply({.request = &request}, options);
    *bytes = pipeline->pipeline.plan(request).total();
  });
}

rocm_sd_status rocm_sd_generate_from(rocm_sd_pipeline* pipeline, const rocm_sd_option* options,
                                     const rocm_sd_inputs* inputs, const rocm_sd_callbacks* callbacks,
                                     rocm_sd_result** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(pipeline && out, "pipeline and out");
    rocm_sd::GenerateRequest request = pipeline->pipeline.default_request();
    apply({.request = &request}, options);
    if (inputs) take(*inputs, request);
    auto result = std::make_unique<Result>();
    rocm_sd::GenerateResult made = pipeline->pipeline.generate(request, adapt(callbacks));
    for (const std::string& warning : made.warnings) rocm_sd::log().warn("{}", warning);
    result->take(std::move(made.pictures));
    *out = result.release();
  });
}

rocm_sd_status rocm_sd_generate(rocm_sd_pipeline* pipeline, const rocm_sd_option* options,
                                const rocm_sd_callbacks* callbacks, rocm_sd_result** out) {
  return rocm_sd_generate_from(pipeline, options, nullptr, callbacks, out);
}

void rocm_sd_result_free(rocm_sd_result* result) { delete static_cast<Result*>(result); }

rocm_sd_status rocm_sd_save(const rocm_sd_picture* picture, const char* path, int quality) {
  return guarded([&] {
    require_argument(picture && picture->rgb && path, "picture and path");
    if (picture->width <= 0 || picture->height <= 0)
      throw UsageError("picture: width and height must be positive");
    const size_t bytes = static_cast<size_t>(picture->width) * static_cast<size_t>(picture->height) * 3;
    rocm_sd::Image image{picture->width, picture->height, {picture->rgb, picture->rgb + bytes}, {}};
    rocm_sd::save_image(image, path,
                        {.quality = quality, .parameters = picture->parameters ? picture->parameters : ""});
  });
}

}  // extern "C"
