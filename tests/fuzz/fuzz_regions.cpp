// Fuzzes regional prompts as text, a region a line behind a line with --region-split: each is read, or
// refused by a UsageError; where all are, each of the latents is shared out whole, and each prompt that is
// drawn has a share. Masks are bytes of the input, not files.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/regions.hpp"

namespace {

using namespace rocm_sd;

constexpr size_t kMaxText = 2000;
constexpr int kMaxLatents = 9, kMaxMaskSide = 20;

void check(bool ok) {
  if (!ok) std::abort();
}

struct Bytes {
  const unsigned char* at;
  size_t left;
  unsigned char next() { return left == 0 ? 0 : (--left, *at++); }
};

bool names_a_file(std::string_view text) {
  return std::ranges::any_of(std::initializer_list<std::string_view>{".png:", ".jpg:", ".jpeg:", ".webp:"},
                             [&](std::string_view ending) { return text.find(ending) != text.npos; });
}

Image mask_of(Bytes& bytes) {
  Image image{1 + bytes.next() % kMaxMaskSide, 1 + bytes.next() % kMaxMaskSide, {}, {}};
  const unsigned char step = bytes.next();
  for (int i = 0; i < image.width * image.height; ++i)
    image.rgb.insert(image.rgb.end(), 3, static_cast<unsigned char>(i * step));
  return image;
}

void check_shares(const ResolvedRequest& r) {
  const auto cells = static_cast<size_t>(r.latent_height * r.latent_width);
  const size_t parts = r.request.regions.size() + (r.region_base_part ? 1 : 0);
  check(r.region_shares.size() == parts && region_prompts(r, "whole").size() == parts);
  for (size_t i = 0; i < cells; ++i) {
    double sum = 0;
    for (const std::vector<float>& part : r.region_shares) {
      check(part.size() == cells && part[i] >= 0 && part[i] <= 1);
      sum += static_cast<double>(part[i]);
    }
    check(std::abs(sum - 1) < 1e-5);
  }
}

void fuzz(Bytes& bytes) {
  ResolvedRequest r;
  r.latent_height = 1 + bytes.next() % kMaxLatents;
  r.latent_width = 1 + bytes.next() % kMaxLatents;
  r.height = 8 * r.latent_height;
  r.width = 8 * r.latent_width;
  r.request.prompt = "whole";
  r.request.region_base = bytes.next() % 5 / 4.0;
  const unsigned char masked = bytes.next();  // which regions have one
  Bytes of_masks{bytes.at, std::min<size_t>(bytes.left, 3 * kMaxRegions)};
  std::string_view text(reinterpret_cast<const char*>(bytes.at), std::min(bytes.left, kMaxText));
  for (size_t line = 0; !text.empty() && line < kMaxRegions + 2; ++line) {
    const std::string own(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(own.size() + 1, text.size()));
    if (line == 0) {
      r.request.region_split = own;
      continue;
    }
    if (names_a_file(own)) continue;
    RegionUse region = parse_region(own);
    for (const double v : region.box) check(std::isfinite(v));
    if (region.box.empty() && masked >> (line % 8) & 1) region.mask = mask_of(of_masks);
    r.request.regions.push_back(std::move(region));
  }
  resolve_regions(r);
  if (!r.request.regions.empty()) check_shares(r);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  Bytes bytes{data, size};
  try {
    fuzz(bytes);
  } catch (const UsageError&) {  // a refusal is a right answer
  }
  return 0;
}
