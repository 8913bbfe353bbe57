#include "pipeline/regions.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/step/blend.hpp"
#include "pipeline/option_tables.hpp"
#include "pipeline/pixels.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kLatentChannels = 4;
constexpr double kNothing = 1e-6;  // a share below it is rounding's

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n");
  return begin == std::string_view::npos ? std::string() : std::string(text.substr(begin, end - begin + 1));
}

// Where the file's name ends in "mask.png: a prompt"; npos: it names none.
size_t end_of_file_name(std::string_view text) {
  size_t end = std::string_view::npos;
  for (const std::string_view ending : {".png:", ".jpg:", ".jpeg:", ".webp:"})
    if (const size_t at = text.find(ending); at != std::string_view::npos)
      end = std::min(end, at + ending.size() - 1);
  return end;
}

// Rows or columns as boxes, in shares of the picture.
std::vector<std::vector<double>> split_boxes(const std::string& split) {
  if (split.empty()) return {};
  const size_t colon = split.find(':');
  const std::string way = split.substr(0, colon);
  require<UsageError>(colon != std::string::npos && (way == "rows" || way == "columns"),
                      "region-split: expected columns:1,2,1 or rows:1,1 (their ratios), got \"",
                      printable(split, 60), "\"");
  const std::vector<double> ratios = option_tables::parse_list(split.substr(colon + 1));
  double sum = 0, begin = 0;
  for (const double ratio : ratios) {
    require<UsageError>(ratio > 0, "region-split: expected ratios above 0, got ", ratio);
    sum += ratio;
  }
  std::vector<std::vector<double>> out;
  for (const double ratio : ratios) {
    const double size = ratio / sum;
    out.push_back(way == "rows" ? std::vector<double>{0, begin, 1, size}
                                : std::vector<double>{begin, 0, size, 1});
    begin += size;
  }
  return out;
}

// How much of each of `count` cells lies between the shares begin and begin + size.
std::vector<double> covered(double begin, double size, int64_t count) {
  const double from = begin * static_cast<double>(count), to = (begin + size) * static_cast<double>(count);
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto cell = static_cast<double>(i);
    out.push_back(std::clamp(std::min(to, cell + 1) - std::max(from, cell), 0.0, 1.0));
  }
  return out;
}

std::vector<double> box_cells(const std::vector<double>& box, int64_t height, int64_t width) {
  require<UsageError>(box.size() == 4, "region: expected left,top,width,height, got ", box.size(),
                      " numbers");
  for (const double v : box)
    require<UsageError>(std::isfinite(v) && v >= 0 && v <= 1,
                        "region: expected left,top,width,height as shares of the picture, 0 to 1, got ", v);
  const std::string shown = concat(box[0], ",", box[1], ",", box[2], ",", box[3]);
  require<UsageError>(box[2] > 0 && box[3] > 0, "region: expected a width and a height above 0, got ", shown);
  require<UsageError>(box[0] + box[2] <= 1 + kNothing && box[1] + box[3] <= 1 + kNothing,
                      "region: expected a box within the picture, got ", shown);
  const std::vector<double> rows = covered(box[1], box[3], height), columns = covered(box[0], box[2], width);
  std::vector<double> out;
  for (const double row : rows)
    for (const double column : columns) out.push_back(row * column);
  return out;
}

// The mask's mean under each of the latents.
std::vector<double> mask_cells(const Image& mask, const ResolvedRequest& r) {
  const std::vector<float> pixels =
      mask_to_floats(mask, static_cast<int>(r.width), static_cast<int>(r.height), 0);
  const int64_t tall = r.height / r.latent_height, wide = r.width / r.latent_width;
  std::vector<double> out;
  for (int64_t y = 0; y < r.latent_height; ++y)
    for (int64_t x = 0; x < r.latent_width; ++x) {
      double sum = 0;
      for (int64_t j = y * tall; j < (y + 1) * tall; ++j)
        for (int64_t i = x * wide; i < (x + 1) * wide; ++i)
          sum += static_cast<double>(pixels[static_cast<size_t>(j * r.width + i)]);
      out.push_back(sum / static_cast<double>(tall * wide));
    }
  return out;
}

// What each region covers of each of the latents, before they share it.
std::vector<std::vector<double>> coverage(const ResolvedRequest& r) {
  const std::vector<RegionUse>& regions = r.request.regions;
  const auto boxes = split_boxes(r.request.region_split);
  std::vector<std::vector<double>> out;
  size_t next = 0;
  for (const RegionUse& region : regions) {
    require<UsageError>(!region.mask || region.box.empty(), "region: expected a mask or a box, got both");
    if (region.mask) {
      out.push_back(mask_cells(*region.mask, r));
      continue;
    }
    const bool own = !region.box.empty();
    require<UsageError>(own || next < boxes.size(), "region: \"", printable(region.prompt, 40),
                        boxes.empty()
                            ? "\": no place; expected \"left,top,width,height: prompt\", \"mask.png: "
                              "prompt\", or region-split"
                            : "\": there is no row or column left for it in region-split");
    out.push_back(box_cells(own ? region.box : boxes[next++], r.latent_height, r.latent_width));
  }
  require<UsageError>(next == boxes.size(), "region-split: has ", boxes.size(),
                      " rows or columns, expected one for each region without a place: ", next);
  return out;
}

}  // namespace

RegionUse parse_region(const std::string& text) {
  const std::string problem = utf8_problem(text);
  require<UsageError>(problem.empty(), problem);
  const size_t colon = text.find(':');
  const auto is_number_char = [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == ',' || c == ' ';
  };
  const bool is_box =
      colon != std::string::npos && colon > 0 &&
      std::all_of(text.begin(), text.begin() + static_cast<ptrdiff_t>(colon), is_number_char) &&
      text.find(',') < colon;
  RegionUse out;
  if (is_box) {
    std::string numbers = text.substr(0, colon);
    std::erase(numbers, ' ');
    out.box = option_tables::parse_list(numbers);
    require<UsageError>(out.box.size() == 4, "expected left,top,width,height before the \":\", got ",
                        out.box.size(), " numbers");
    out.prompt = trimmed(text.substr(colon + 1));
    return out;
  }
  const size_t end = end_of_file_name(text);
  if (end == std::string::npos) {
    out.prompt = trimmed(text);
    return out;
  }
  out.mask = load_image(trimmed(text.substr(0, end)));
  out.prompt = trimmed(text.substr(end + 1));
  return out;
}

void resolve_regions(ResolvedRequest& resolved) {
  const GenerateRequest& r = resolved.request;
  if (r.regions.empty()) {
    require<UsageError>(r.region_split.empty() && r.region_base == 0,
                        "region-split, region-base: need a region");
    return;
  }
  require<UsageError>(r.regions.size() <= kMaxRegions, "region: at most ", kMaxRegions, ", got ",
                      r.regions.size());
  require<UsageError>(std::isfinite(r.region_base) && r.region_base >= 0 && r.region_base <= 1,
                      "region-base: expected a number from 0 to 1, got ", r.region_base);
  const std::vector<std::vector<double>> covers = coverage(resolved);
  std::vector<std::vector<float>> shares(covers.size() + 1);
  bool base = false;
  for (size_t i = 0; i < covers[0].size(); ++i) {
    double sum = 0;
    for (const auto& cover : covers) sum += cover[i];
    const double left = 1 - (1 - r.region_base) * std::min(sum, 1.0);  // of the whole picture's prompt
    base = base || left > kNothing;
    shares[0].push_back(static_cast<float>(left > kNothing ? left : 0));
    for (size_t part = 0; part < covers.size(); ++part)
      shares[part + 1].push_back(sum > 0 ? static_cast<float>((1 - left) * covers[part][i] / sum) : 0.0f);
  }
  resolved.region_base_part = base;
  if (!base) {
    shares.erase(shares.begin());
    if (!trimmed(r.prompt).empty())
      resolved.warnings.emplace_back(
          "prompt: not drawn: the regions cover the picture, and region-base is 0");
  }
  resolved.region_shares = std::move(shares);
}

std::vector<std::string> region_prompts(const ResolvedRequest& resolved, const std::string& prompt) {
  std::vector<std::string> out;
  if (resolved.region_base_part) out.push_back(prompt);
  for (const RegionUse& region : resolved.request.regions) out.push_back(region.prompt);
  return out;
}

RegionBlend::RegionBlend(Device& device, const ResolvedRequest& resolved, int64_t images)
    : images_(images), negatives_(resolved.first_part()) {
  const auto& shares = resolved.region_shares;
  std::vector<double> sums(shares.at(0).size(), 0.0);
  for (const std::vector<float>& part : shares) {
    std::vector<float> all;
    for (size_t i = 0; i < part.size(); ++i) {
      sums[i] += static_cast<double>(part[i]);
      const double share = sums[i] > 0 ? static_cast<double>(part[i]) / sums[i] : 1;
      all.insert(all.end(), kLatentChannels, static_cast<float>(share));
    }
    const size_t size = all.size();
    for (int64_t n = 1; n < images; ++n)
      all.insert(all.end(), all.begin(), all.begin() + static_cast<ptrdiff_t>(size));
    shares_.push_back(tensor_from(
        device, {images, resolved.latent_height, resolved.latent_width, kLatentChannels}, all.data()));
  }
}

Tensor RegionBlend::spread(Exec& ex, const Tensor& input) const {
  const int64_t conditions = negatives_ + static_cast<int64_t>(shares_.size());
  const Tensor out =
      ex.alloc({conditions * images_, input.dim(1), input.dim(2), input.dim(3)}, input.dtype());
  for (int64_t c = 0; c < conditions; ++c)
    copy_into(ex, input.narrow(0, 0, images_), out.narrow(0, c * images_, images_));
  return out;
}

Tensor RegionBlend::average(Exec& ex, const Tensor& predicted) const {
  const auto part = [&](int64_t condition) { return predicted.narrow(0, condition * images_, images_); };
  Tensor sum = part(negatives_);
  for (size_t i = 1; i < shares_.size(); ++i)
    sum = blend(ex, part(negatives_ + static_cast<int64_t>(i)), sum, shares_[i]);
  const Tensor out = ex.alloc(
      {(negatives_ + 1) * images_, predicted.dim(1), predicted.dim(2), predicted.dim(3)}, predicted.dtype());
  for (int64_t c = 0; c < negatives_; ++c) copy_into(ex, part(c), out.narrow(0, c * images_, images_));
  copy_into(ex, sum, out.narrow(0, negatives_ * images_, images_));
  return out;
}

}  // namespace rocm_sd
