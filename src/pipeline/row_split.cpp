// Which rows of a request's maps each rank has.
#include "models/row_split.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {
namespace {

const RowSplit* split_of(std::map<std::array<int64_t, 4>, std::unique_ptr<RowSplit>>& splits, Ranks& ranks,
                         const std::array<int64_t, 4>& how) {
  std::unique_ptr<RowSplit>& split = splits[how];
  if (!split) split = std::make_unique<RowSplit>(ranks, how[0], how[1], how[2], how[3]);
  return split.get();
}

}  // namespace

void Pipeline::State::divide_ranks() {
  if (draws_alone() || ranks_->division() != Division::kBoth) return;
  const int each = ranks_->count() / 2, own = ranks_->rank(), first = own / each * each;
  std::vector<int> half(static_cast<size_t>(each));
  std::iota(half.begin(), half.end(), first);
  half_ = std::make_unique<RankView>(*ranks_, std::move(half));
  pair_ = std::make_unique<RankView>(*ranks_, std::vector<int>{own % each, each + own % each});
}

const RowSplit* Pipeline::State::unet_rows(const ResolvedRequest& r) {
  if (!divides_rows()) return nullptr;
  check_rows(r);
  const auto& down = components.unet->config().down;
  const auto halvings = std::ranges::count_if(down, [](const UNetBlockConfig& b) { return b.resamples; });
  return split_of(splits_, half_ ? *half_ : *ranks_,
                  {r.latent_height, r.latent_width, int64_t{1} << halvings, 0});
}

// In bands, by a VAE that is resized as a whole, and maps that wrap: rank 0 decodes alone.
const RowSplit* Pipeline::State::vae_rows(const ResolvedRequest& r) {
  if (draws_alone() || decodes_alone_ || components.tiny_vae || components.vae->config().half_size_finest ||
      vae_shape_.bands > 1 || r.latent_height < ranks_->count() || r.request.tiling_x || r.request.tiling_y)
    return nullptr;
  const int doublings = std::countr_zero(static_cast<uint64_t>(components.downscale()));
  return split_of(splits_, *ranks_, {r.latent_height, r.latent_width, 1, doublings});
}

Tensor Pipeline::State::own_rows(const Tensor& maps) const {
  const RowSplit* rows = unet->shape().rows;
  return rows && maps ? maps.narrow(1, rows->begin(), rows->rows()) : maps;
}

void Pipeline::State::check_rows(const ResolvedRequest& r) const {
  const auto refuse = [](bool there, const char* what) {
    require<UsageError>(!there, "split: rows: does not go with ", what, "; --split guidance and images do");
  };
  refuse(r.request.tile_size > 0, "tile-size");
  refuse(!r.request.freeu.empty(), "freeu");
  refuse(!r.request.freeu_v2.empty(), "freeu-v2");
  refuse(r.request.sag_scale > 0, "sag-scale");
  for (const IpAdapterUse& use : r.request.ip_adapters) refuse(!use.masks.empty(), "ip-mask");
  for (const ControlUse& use : r.request.controls) refuse(use.mask.has_value(), "control-mask");
  for (const auto& control : controls_) {
    refuse(control->adapter(), "T2I-Adapters");
    refuse(control->net() && control->net()->config().pools, "ControlNets that pool");
  }
}

void Pipeline::State::check_layers(const ResolvedRequest& r) const {
  require<UsageError>(
      r.request.controls.empty(),
      "split: pipeline: does not go with ControlNets and T2I-Adapters, which no rank has room "
      "for beside its layers; --split guidance and images do");
}

bool Pipeline::State::agree_about_savings() {
  struct Told {
    char decodes_rows, eight_bits;
  };
  std::vector<Told> all(static_cast<size_t>(ranks_->count()));
  const bool shrunk = components.weights_are_auto && components.weights;
  all[static_cast<size_t>(ranks_->rank())] = {vae->shape().rows != nullptr, shrunk};
  std::vector<size_t> ends;
  for (size_t rank = 1; rank <= all.size(); ++rank) ends.push_back(rank * sizeof(Told));
  all_gather(*ranks_, all.data(), ends);
  const bool all_decode = std::ranges::all_of(all, [](const Told& t) { return t.decodes_rows != 0; });
  bool changes = !all_decode && vae->shape().rows;
  decodes_alone_ = decodes_alone_ || changes;
  if (!shrunk && std::ranges::any_of(all, [](const Told& t) { return t.eight_bits != 0; })) {
    require<OutOfMemoryError>(shrink_weights(),
                              "split: another rank has the UNet's weights in 8 bits for want of memory, and "
                              "this one cannot; expected --weights int8 for all");
    log().warn(
        "memory: another rank is short of it: the UNet's weights in 8 bits (--weights int8) here, too");
    changes = true;
  }
  return changes;
}

}  // namespace rocm_sd
