#include "pipeline/size_conditions.hpp"

namespace rocm_sd {

std::vector<std::vector<float>> size_conditions(const ResolvedRequest& r, bool refiner) {
  const GenerateRequest& q = r.request;
  struct Sizes {
    int64_t original_height, original_width, top, left, target_height, target_width;
  };
  const auto or_else = [](int64_t asked, int64_t own) { return asked ? asked : own; };
  const Sizes positive{
      or_else(q.original_height, r.height), or_else(q.original_width, r.width), q.crop_top, q.crop_left,
      or_else(q.target_height, r.height),   or_else(q.target_width, r.width)};
  const bool own_crop = refiner || q.negative_original_height || q.negative_original_width ||
                        q.negative_target_height || q.negative_target_width;
  const Sizes negative{q.negative_original_height.value_or(positive.original_height),
                       q.negative_original_width.value_or(positive.original_width),
                       q.negative_crop_top.value_or(own_crop ? 0 : positive.top),
                       q.negative_crop_left.value_or(own_crop ? 0 : positive.left),
                       q.negative_target_height.value_or(positive.target_height),
                       q.negative_target_width.value_or(positive.target_width)};
  std::vector<std::vector<float>> out;
  for (int c = 0; c < r.conditions; ++c) {
    const bool is_part = c >= r.first_part();
    const Sizes& s = is_part ? positive : negative;
    std::vector<double> ids = {static_cast<double>(s.original_height), static_cast<double>(s.original_width),
                               static_cast<double>(s.top), static_cast<double>(s.left)};
    if (refiner)
      ids.push_back(is_part ? q.aesthetic_score : q.negative_aesthetic_score);
    else
      ids.insert(ids.end(), {static_cast<double>(s.target_height), static_cast<double>(s.target_width)});
    out.emplace_back(ids.begin(), ids.end());
  }
  return out;
}

}  // namespace rocm_sd
