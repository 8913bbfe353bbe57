#include "pipeline/detail.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"
#include "base/format.hpp"
#include "pipeline/infotext.hpp"
#include "pipeline/options.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kMaxBoxes = 64;
constexpr int kLeastSide = 4;  // of an area of a mask, in pixels

bool is_white(const Image& mask, int x, int y) {
  const size_t at = 3 * (static_cast<size_t>(y) * static_cast<size_t>(mask.width) + static_cast<size_t>(x));
  return mask.rgb[at] + mask.rgb[at + 1] + mask.rgb[at + 2] > 3 * 127;
}

void check(const GenerateRequest& r) {
  const Detailer& d = r.detail;
  require<UsageError>(std::isfinite(d.strength) && d.strength > 0 && d.strength <= 1,
                      "detail-strength: expected a number above 0, at most 1, got ", d.strength);
  require<UsageError>(d.padding >= 0 && d.padding <= 1024, "detail-padding: expected 0 to 1024, got ",
                      d.padding);
  require<UsageError>(d.blur >= 0 && d.blur <= 64, "detail-blur: expected 0 to 64, got ", d.blur);
  require<UsageError>(d.steps >= 0 && d.steps <= 1000,
                      "detail-steps: expected 1 to 1000, or 0 for the picture's, got ", d.steps);
  require<UsageError>(
      !r.denoising_start && !r.denoising_end && !r.keep_latents,
      "detail: not with denoising-start, denoising-end and keep-latents, which hand on latents");
}

std::string box_text(const Detailer::Box& b) {
  return concat(b.left, ",", b.top, ",", b.width, ",", b.height);
}

}  // namespace

Detailer::Box parse_detail_box(std::string_view text) {
  std::vector<int> values;
  for (;;) {
    const size_t comma = std::min(text.find(','), text.size());
    values.push_back(static_cast<int>(parse_integer(text.substr(0, comma), 0, 65536)));
    if (comma == text.size()) break;
    text = text.substr(comma + 1);
  }
  require<UsageError>(values.size() == 4 && values[2] > 0 && values[3] > 0,
                      "expected left,top,width,height in pixels, the last two above 0");
  return {values[0], values[1], values[2], values[3]};
}

std::vector<Detailer::Box> boxes_of_mask(const Image& mask) {
  std::vector<Detailer::Box> out;
  std::vector<bool> seen(static_cast<size_t>(mask.width) * static_cast<size_t>(mask.height));
  const auto index = [&](int x, int y) {
    return static_cast<size_t>(y) * static_cast<size_t>(mask.width) + static_cast<size_t>(x);
  };
  std::vector<std::pair<int, int>> open;
  for (int top = 0; top < mask.height; ++top)
    for (int left = 0; left < mask.width; ++left) {
      if (seen[index(left, top)] || !is_white(mask, left, top)) continue;
      int x0 = left, x1 = left, y1 = top;
      open.assign(1, {left, top});
      seen[index(left, top)] = true;
      while (!open.empty()) {
        const auto [x, y] = open.back();
        open.pop_back();
        x0 = std::min(x0, x), x1 = std::max(x1, x), y1 = std::max(y1, y);
        for (int ny = std::max(y - 1, 0); ny <= std::min(y + 1, mask.height - 1); ++ny)
          for (int nx = std::max(x - 1, 0); nx <= std::min(x + 1, mask.width - 1); ++nx)
            if (!seen[index(nx, ny)] && is_white(mask, nx, ny)) {
              seen[index(nx, ny)] = true;
              open.emplace_back(nx, ny);
            }
      }
      if (x1 - x0 + 1 >= kLeastSide && y1 - top + 1 >= kLeastSide)
        out.push_back({x0, top, x1 - x0 + 1, y1 - top + 1});
    }
  return out;
}

std::vector<Detailer::Box> detail_boxes(const Detailer& use, int width, int height) {
  std::vector<Detailer::Box> out = use.boxes;
  if (use.mask) {
    require<UsageError>(use.mask->width == width && use.mask->height == height, "detail-mask: expected ",
                        width, " x ", height, " as the picture, got ", use.mask->width, " x ",
                        use.mask->height);
    const std::vector<Detailer::Box> more = boxes_of_mask(*use.mask);
    out.insert(out.end(), more.begin(), more.end());
  }
  require<UsageError>(!out.empty(), "detail-mask: it has no white area of ", kLeastSide, " x ", kLeastSide,
                      " pixels or more");
  require<UsageError>(out.size() <= kMaxBoxes, "detail: expected at most ", kMaxBoxes, " parts, got ",
                      out.size());
  for (const Detailer::Box& box : out)
    require<UsageError>(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
                            box.width <= width - box.left && box.height <= height - box.top,
                        "detail-box: ", box_text(box), " lies beyond the picture of ", width, " x ", height);
  return out;
}

GenerateRequest detail_request(const GenerateRequest& request, const Image& picture, const Detailer::Box& box,
                               size_t index, uint64_t seed) {
  const Detailer& d = request.detail;
  GenerateRequest part = request;
  part.detail = {};
  part.hires = {};
  part.loopback = {};
  part.outpaint = {};
  part.preview = {};
  part.controls.clear();  // they see the whole picture
  part.regions.clear();
  part.tiling_x = part.tiling_y = false;
  part.tile_size = 0;
  part.variation_strength = 0;
  part.seed_resize_width = part.seed_resize_height = 0;
  part.init_latents.clear();
  part.initial_noise.clear();
  part.init_images.clear();
  part.batch = 1;
  part.seed = static_cast<int64_t>(seed);
  part.seeds.clear();
  if (!request.negative_prompts.empty()) part.negative_prompt = request.negative_prompts.at(index);
  part.negative_prompts.clear();
  if (!request.prompts.empty()) part.prompt = request.prompts.at(index);
  part.prompts.clear();
  if (d.prompt && !d.prompt->empty()) part.prompt = *d.prompt;
  if (d.negative_prompt && !d.negative_prompt->empty()) part.negative_prompt = d.negative_prompt;
  if (d.steps > 0) part.steps = d.steps;
  part.strength = d.strength;
  part.width = d.width;
  part.height = d.height;
  part.init_image = picture;
  Image mask{picture.width, picture.height, std::vector<uint8_t>(picture.rgb.size(), 0), {}};
  for (int y = box.top; y < box.top + box.height; ++y) {
    const auto row = mask.rgb.begin() + 3 * (static_cast<ptrdiff_t>(y) * mask.width + box.left);
    std::fill(row, row + 3 * static_cast<ptrdiff_t>(box.width), uint8_t{255});
  }
  part.mask = std::move(mask);
  part.mask_blur = d.blur;
  part.mask_invert = false;
  part.masked_content = "original";
  part.mask_blend = "denoised";
  part.only_masked = true;
  part.only_masked_padding = d.padding;
  return part;
}

std::pair<GenerateRequest, GenerateRequest> detail_plans(const GenerateRequest& request, int width,
                                                         int height) {
  check(request);
  GenerateRequest whole = request;
  whole.detail = {};
  const Image* seen = request.init_image ? &*request.init_image : nullptr;
  const auto side = [](int asked, int of_image, int models) {
    return asked ? asked : of_image ? of_image : models;
  };
  const int wide = side(request.width, seen ? seen->width : 0, width);
  const int high = side(request.height, seen ? seen->height : 0, height);
  const Image grey{
      wide, high, std::vector<uint8_t>(3 * static_cast<size_t>(wide) * static_cast<size_t>(high), 128), {}};
  return {whole, detail_request(request, grey, {0, 0, wide, high}, 0, 0)};
}

GenerateResult draw_details(const GenerateRequest& request, const DrawOnce& draw) {
  check(request);
  GenerateRequest whole = request;
  whole.detail = {};
  GenerateResult result = draw(whole);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < result.pictures.size(); ++i) {
    Picture& picture = result.pictures[i];
    Infotext info = parse_infotext(picture.parameters);
    std::string places;
    for (const Detailer::Box& box : detail_boxes(request.detail, picture.image.width, picture.image.height)) {
      const GenerateResult part = draw(detail_request(request, picture.image, box, i, picture.seed));
      picture.image = part.pictures.front().image;
      if (part.plan.total() > result.plan.total()) result.plan = part.plan;
      result.arena_used = std::max(result.arena_used, part.arena_used);
      result.device_peak = std::max(result.device_peak, part.device_peak);
      places += concat(places.empty() ? "" : " ", box_text(box));
    }
    info.fields.emplace_back("Detail boxes", places);
    info.fields.emplace_back("Detail denoising strength", fmt::format("{}", request.detail.strength));
    if (request.detail.prompt) info.fields.emplace_back("Detail prompt", *request.detail.prompt);
    picture.parameters = format_infotext(info);
  }
  result.times.push_back({"details", std::chrono::duration<double>(Clock::now() - begin).count()});
  return result;
}

}  // namespace rocm_sd
