// Requests that are drawn in more than one step: grown canvases, the surroundings of a mask, two passes; and
// previews.
#include <algorithm>

#include "base/error.hpp"
#include "pipeline/detail.hpp"
#include "pipeline/hires.hpp"
#include "pipeline/inpaint.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/preview.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {
namespace {

// As A1111 names them; nothing for files.
std::optional<PictureFilter> picture_filter(const std::string& upscaler) {
  return upscaler == "None" || upscaler == "none" ? PictureFilter::kLanczos : filter_named(upscaler);
}

bool draws_part(const GenerateRequest& r) { return r.only_masked && r.mask && r.init_image; }

// What a checked request draws on.
GenerateRequest on_canvas(const GenerateRequest& request) {
  check_inpainting(request);
  if (!request.outpaint.active()) return request;
  require<UsageError>(request.init_image.has_value(), "outpaint: needs an init-image to grow");
  require<UsageError>(!request.mask && !request.only_masked,
                      "outpaint: makes the mask itself; expected none");
  require<UsageError>(request.width == 0 && request.height == 0,
                      "outpaint: the size follows from the init-image; expected no width or height");
  return outpainted(request);
}

}  // namespace

MemoryPlan Pipeline::State::plan(const GenerateRequest& asked) {
  if (asked.detail.active()) {
    const auto [whole, part] =
        detail_plans(asked, components.info.default_width, components.info.default_height);
    const MemoryPlan one = plan(whole), other = plan(part);
    return one.total() < other.total() ? other : one;
  }
  const GenerateRequest request = on_canvas(asked);
  if (draws_part(request))
    return plan(
        prepare(masked_part(request, components.info.default_width, components.info.default_height).request));
  if (redraws_image(request)) return plan(prepare(plan_of_enlarged(request)));
  const PreparedRequest first = prepare(request);
  if (!request.hires.active()) return plan(first);
  GenerateRequest second = second_of(first, request);
  return plan(prepare(second));  // the larger one
}

GenerateResult Pipeline::State::generate(const GenerateRequest& asked, const Callbacks& callbacks) {
  const DrawOnce draw = [&](const GenerateRequest& one) { return generate(one, callbacks); };
  if (asked.detail.active()) return draw_details(asked, draw);
  if (asked.loopback.loops != 1) return draw_loops(asked, draw);
  const GenerateRequest request = on_canvas(asked);
  if (draws_part(request)) return draw_masked_part(request, callbacks);
  if (redraws_image(request)) return draw_enlarged(request, callbacks);
  if (request.hires.active()) return draw_twice(request, callbacks);
  return generate(prepare(request), callbacks);
}

GenerateResult Pipeline::State::draw_masked_part(const GenerateRequest& request, const Callbacks& callbacks) {
  const MaskedPart part = masked_part(request, components.info.default_width, components.info.default_height);
  PreparedRequest prepared = prepare(part.request);
  prepared.mask_is_ready = true;
  GenerateResult result = generate(prepared, callbacks);
  for (Picture& picture : result.pictures) picture.image = part.pasted(picture.image);
  return result;
}

// The second pass with latents of its size, for its rules to be checked and its memory to be planned.
GenerateRequest Pipeline::State::second_of(const ResolvedRequest& first,
                                           const GenerateRequest& request) const {
  const auto multiple = static_cast<int>(components.downscale());
  const HiresSizes sizes =
      hires_sizes(request.hires, {static_cast<int>(first.width), static_cast<int>(first.height)}, multiple);
  GenerateRequest second = second_pass(request, first.request, sizes.result);
  const int64_t latents = int64_t{sizes.result.width / multiple} * (sizes.result.height / multiple);
  second.init_latents.assign(static_cast<size_t>(4 * first.request.batch * latents), 0.0f);
  return second;
}

void Pipeline::State::need_upscaler(const std::string& file) {
  if (upscaler_ && upscaler_file_ == file) return;
  upscaler_.reset();
  upscaler_ = std::make_unique<ImageUpscaler>(components.place[Part::kVae], file,
                                              upscaler_dtype(components.place[Part::kVae], "auto"));
  upscaler_file_ = file;
}

// The upscaler's pictures of the first pass's.
std::vector<Image> Pipeline::State::enlarge_pictures(const std::vector<Image>& pictures,
                                                     const PictureSize& size, const std::string& upscaler,
                                                     const Callbacks& callbacks) {
  std::vector<Image> out;
  if (const std::optional<PictureFilter> filter = picture_filter(upscaler)) {
    for (const Image& image : pictures) out.push_back(resized(image, size, *filter));
    return out;
  }
  need_upscaler(upscaler);
  const Clock::time_point begin = Clock::now();
  for (const Image& image : pictures)
    out.push_back(enlarged(*upscaler_, image, size, {}, watch(callbacks), [&](int64_t done, int64_t all) {
      return !callbacks.progress || callbacks.progress({"upscale", static_cast<int>(done),
                                                        static_cast<int>(all), seconds_since(begin)});
    }));
  upscaler_->release_memory();
  return out;
}

namespace {

// The init images, or the one for all.
std::vector<Image> images_to_enlarge(const GenerateRequest& request) {
  std::vector<Image> out = request.init_images;
  if (out.empty()) out.push_back(*request.init_image);
  for (Image& image : out) image = {image.width, image.height, opaque_rgb(image), {}};
  return out;
}

HiresSizes sizes_of_enlarged(const GenerateRequest& request, const std::vector<Image>& images, int multiple) {
  check_hires(request);
  require<UsageError>(request.width == 0 && request.height == 0,
                      "hires: with an init-image the size follows from it, hires-scale, hires-width and "
                      "hires-height; expected no width or height");
  for (const Image& image : images)
    require<UsageError>(image.width == images.front().width && image.height == images.front().height,
                        "hires: init images of one size are enlarged together, got ", images.front().width,
                        " x ", images.front().height, " and ", image.width, " x ", image.height);
  require<UsageError>(
      !latent_resize_named(request.hires.upscaler),
      "hires-upscaler: with an init-image expected Lanczos, Bicubic, Nearest or a network's file, got ",
      printable(request.hires.upscaler));
  return hires_sizes(request.hires, {images.front().width, images.front().height}, multiple);
}

void set_init_images(GenerateRequest& request, std::vector<Image> images) {
  if (images.size() == 1)
    request.init_image = std::move(images.front());
  else
    request.init_images = std::move(images);
}

}  // namespace

GenerateRequest Pipeline::State::plan_of_enlarged(const GenerateRequest& request) const {
  const std::vector<Image> images = images_to_enlarge(request);
  const PictureSize size =
      sizes_of_enlarged(request, images, static_cast<int>(components.downscale())).result;
  GenerateRequest out = redrawn(request, size);
  const auto bytes =
      static_cast<size_t>(3) * static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
  set_init_images(
      out, std::vector<Image>(images.size(), {size.width, size.height, std::vector<uint8_t>(bytes), {}}));
  return out;
}

GenerateResult Pipeline::State::draw_enlarged(const GenerateRequest& request, const Callbacks& callbacks) {
  require<UsageError>(draws_alone(),
                      "hires: not with a picture that several devices draw together; expected "
                      "--split images");
  const auto multiple = static_cast<int>(components.downscale());
  resolve_request(plan_of_enlarged(request), components, schedule);  // bad options fail now
  const std::vector<Image> small = images_to_enlarge(request);
  const HiresSizes sizes = sizes_of_enlarged(request, small, multiple);
  const std::string& upscaler = request.hires.upscaler;
  if (!picture_filter(upscaler)) need_upscaler(upscaler);
  const Clock::time_point begin = Clock::now();
  std::vector<Image> large;
  with_savings([&] {
    large = enlarge_pictures(small, sizes.enlarged, upscaler, callbacks);
    return 0;
  });
  for (Image& image : large) image = cut_middle(image, sizes.result, multiple);
  const double seconds = seconds_since(begin);
  GenerateRequest second = redrawn(request, sizes.result);
  set_init_images(second, std::move(large));
  GenerateResult result = generate(prepare(second), callbacks);
  result.times.insert(result.times.begin(), {"upscale", seconds});
  return result;
}

GenerateResult Pipeline::State::draw_twice(const GenerateRequest& request, const Callbacks& callbacks) {
  require<UsageError>(draws_alone(),
                      "hires: not with a picture that several devices draw together; expected "
                      "--split images");
  const auto multiple = static_cast<int>(components.downscale());
  const std::string& upscaler = request.hires.upscaler;
  const std::optional<LatentResize> by_latents = latent_resize_named(upscaler);
  PreparedRequest first = prepare(request);
  const PictureSize size{static_cast<int>(first.width), static_cast<int>(first.height)};
  const HiresSizes sizes = hires_sizes(request.hires, size, multiple);
  GenerateRequest second = second_of(first, request);
  resolve_request(second, components, schedule);  // a bad second pass fails now
  if (!by_latents && !picture_filter(upscaler)) need_upscaler(upscaler);
  first.decodes = !by_latents;
  GenerateResult one = generate(first, callbacks);

  second.init_latents.clear();
  if (by_latents) {
    std::vector<float> latents;
    for (const Picture& p : one.pictures) latents.insert(latents.end(), p.latents.begin(), p.latents.end());
    second.init_latents = enlarge_latents(latents, size, sizes, multiple, *by_latents);
  } else {
    const Clock::time_point begin = Clock::now();
    std::vector<Image> small, large;
    for (const Picture& p : one.pictures) small.push_back(p.image);
    with_savings([&] {
      large = enlarge_pictures(small, sizes.enlarged, upscaler, callbacks);
      return 0;
    });
    for (Image& image : large) second.init_images.push_back(cut_middle(image, sizes.result, multiple));
    one.times.push_back({"upscale", seconds_since(begin)});
  }
  GenerateResult two = generate(prepare(second), callbacks);
  for (size_t i = 0; i < two.pictures.size(); ++i) two.pictures[i].parameters = one.pictures[i].parameters;
  two.times.insert(two.times.begin(), one.times.begin(), one.times.end());
  two.files.insert(two.files.begin(), one.files.begin(), one.files.end());
  for (const std::string& warning : one.warnings)
    if (std::ranges::find(two.warnings, warning) == two.warnings.end()) two.warnings.push_back(warning);
  two.arena_used = std::max(two.arena_used, one.arena_used);
  two.device_peak = std::max(two.device_peak, one.device_peak);
  return two;
}

void Pipeline::State::show_preview(const PreparedRequest& r, const StepReport& report,
                                   const Callbacks& callbacks) {
  const PreviewUse& use = r.request.preview;
  if (!callbacks.preview || use.mode == "none" || report.step % use.interval != 0) return;
  if (callbacks.wants_preview && !callbacks.wants_preview(report.step, report.total)) return;
  const bool decodes = use.mode != "proj" && draws_alone() && !residency.offload();
  const auto height = static_cast<int>(r.latent_height), width = static_cast<int>(r.latent_width);
  std::vector<float> values;
  Clock::time_point begin = Clock::now();
  const Clock::time_point first = begin;
  if (!decodes) values = to_floats(*components.device, report.denoised);
  for (int i = 0; i < r.request.batch; ++i) {
    Preview preview{i, report.step, report.total, {}, 0};
    if (!decodes) {
      preview.picture = project_latents(
          &values[static_cast<size_t>(i) * values.size() / static_cast<size_t>(r.request.batch)], height,
          width, components.kind);
    } else {
      try {
        preview.picture = vae->decode(at_vae(report.denoised.narrow(0, i, 1)), watch(callbacks));
      } catch (const NotFinite&) {  // the finished picture will be decoded in a wider type
        return;
      }
    }
    preview.seconds = seconds_since(begin);
    callbacks.preview(preview);
    begin = Clock::now();
  }
  preview_seconds_ += seconds_since(first);
}

}  // namespace rocm_sd
