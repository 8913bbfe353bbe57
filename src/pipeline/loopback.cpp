#include "pipeline/loopback.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"
#include "pipeline/infotext.hpp"

namespace rocm_sd {

double loop_strength(const Loopback& use, double first, int loop) {
  require<UsageError>(use.curve == "aggressive" || use.curve == "linear" || use.curve == "lazy",
                      "loopback-curve: expected aggressive, linear or lazy, got \"", printable(use.curve),
                      "\"");
  if (use.loops == 1) return first;
  const double progress = static_cast<double>(loop) / (use.loops - 1), turn = progress * std::numbers::pi / 2;
  const double share = use.curve == "aggressive" ? std::sin(turn)
                       : use.curve == "lazy"     ? 1 - std::cos(turn)
                                                 : progress;
  return first + (use.final_strength.value_or(first) - first) * share;
}

GenerateResult draw_loops(const GenerateRequest& request, const DrawOnce& draw) {
  const Loopback& use = request.loopback;
  require<UsageError>(use.loops >= 1 && use.loops <= 100, "loopback: expected 1 to 100 loops, got ",
                      use.loops);
  require<UsageError>(request.init_image || !request.init_images.empty(),
                      "loopback: image to image again and again: expected an init-image");
  require<UsageError>(!request.hires.active() && !request.outpaint.active() && !request.denoising_start &&
                          !request.denoising_end,
                      "loopback: not with hires, outpaint, denoising-start and denoising-end");
  require<UsageError>(!request.mask || request.batch == 1,
                      "loopback: with a mask expected a batch of 1, got ", request.batch);
  const double last = use.final_strength.value_or(request.strength);
  require<UsageError>(std::isfinite(last) && last >= 0 && last <= 1,
                      "loopback-strength: expected a number from 0 to 1, got ", last);
  GenerateRequest next = request;
  next.loopback = {};
  GenerateResult all;
  for (int loop = 0; loop < use.loops; ++loop) {
    next.strength = loop_strength(use, request.strength, loop);
    GenerateResult one = draw(next);
    one.times.insert(one.times.begin(), all.times.begin(), all.times.end());
    if (loop == 0) {
      // The seed may have been drawn; images of a batch have those that follow it.
      next.seed = static_cast<int64_t>(one.pictures.front().seed);
    }
    all = std::move(one);
    if (loop + 1 == use.loops) break;
    ++next.seed;
    for (int64_t& seed : next.seeds) ++seed;
    next.init_latents.clear();
    if (all.pictures.size() == 1) {
      next.init_image = all.pictures.front().image;
      next.init_images.clear();
    } else {
      next.init_images.clear();
      for (const Picture& picture : all.pictures) next.init_images.push_back(picture.image);
    }
  }
  for (Picture& picture : all.pictures) {
    Infotext info = parse_infotext(picture.parameters);
    info.fields.emplace_back("Loopback", std::to_string(use.loops));
    info.fields.emplace_back("First denoising strength", fmt::format("{}", request.strength));
    if (use.final_strength) info.fields.emplace_back("Loopback curve", use.curve);
    picture.parameters = format_infotext(info);
  }
  return all;
}

}  // namespace rocm_sd
