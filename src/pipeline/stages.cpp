// The stages of a pipeline: made for a request's shapes, brought to the device, and made anew in a wider type
// after a result that was not finite.
#include "base/error.hpp"
#include "base/log.hpp"
#include "pipeline/savings.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {
namespace {

template <class StageT, class Shape>
void make(std::unique_ptr<StageT>& stage, Components& components, Arena& arena, const Shape& shape) {
  if (stage && stage->shape() == shape) return;
  stage.reset();  // gives its buffers back before the new ones are made
  stage = std::make_unique<StageT>(components, arena, shape);
}

}  // namespace

void Pipeline::State::make_stages(const PreparedRequest& r) {
  if (!has_company(r)) make_unet_stage(r);
  if (vae_shape_.height != r.latent_height || vae_shape_.width != r.latent_width)
    vae_shape_ = {r.latent_height, r.latent_width};  // whole, until memory is short
  vae_shape_.rows = vae_rows(r);
  vae_shape_.wrap = {r.request.tiling_x, r.request.tiling_y};
  if (image_units_.empty())
    image.reset();
  else
    make(image, components, arenas[Part::kImage], image_units_);
  make(vae, components, arenas[Part::kVae], vae_shape_);
  make(text, components, arenas[Part::kText], text_shape(r));
}

void Pipeline::State::make_unet_stage(const PreparedRequest& r) {
  const TextShape text_rows = text_shape(r);
  const int64_t tokens = r.rows.chunks * text_rows.tokens.front();
  const ConditionShare own = own_conditions(r);
  UnetShape shape{r.request.batch * r.tiles.batch, own.count, r.tiles.height, r.tiles.width, tokens};
  shape.windows = r.tiles.count();
  shape.first_condition = own.first;
  shape.rows = unet_rows(r);
  if (shape.rows) shape.height = shape.rows->rows();
  if (divides_layers()) {
    check_layers(r);
    shape.layers = ranks_;
    // Where the conditions are too few to keep all ranks at work, each image is a micro-batch. Strengths of
    // run-time LoRAs are for a condition's images.
    const bool by_image = shape.conditions < ranks_->count() && components.runtime_adapters.empty();
    shape.micro_rows = by_image ? 1 : shape.batch;
  }
  if (divides_tensors()) shape.tensors = ranks_;
  shape.guided = own.all > 1;
  shape.perturbed = r.perturbed && own.has_last();
  shape.perturbed_layers = r.perturbed_layers;
  shape.freeu_second = !r.request.freeu_v2.empty();
  shape.freeu = shape.freeu_second ? r.request.freeu_v2 : r.request.freeu;
  shape.received = r.request.sag_scale > 0;
  shape.drops_negative = r.drops_negative;
  shape.savings = r.request.savings;
  shape.wrap = {r.request.tiling_x, r.request.tiling_y};
  if (!draws_alone()) check_together(r.request, *ranks_);
  require<UsageError>(
      !shape.received || draws_alone(),
      "sag-scale: not with a picture that several devices draw together (split: guidance, tensor, ...), "
      "which "
      "computes the predictions or the attention on several devices; expected --split images");
  planned_controls_ = plan_controls(r, controls_);
  for (const PlannedControl& control : planned_controls_) shape.controls.push_back(control.unit);
  shape.images = image_slots(r);
  if (!controls_.empty() || !shape.images.empty()) shape.image_height = r.height, shape.image_width = r.width;
  if (!components.runtime_adapters.empty()) row_unet.reset();  // whose tables of strengths are others
  make(unet, components, arenas[Part::kUnet], shape);
}

RowStage& Pipeline::State::make_row_stage(const RowShape& shape) {
  if (!components.runtime_adapters.empty()) unet.reset();
  make(row_unet, components, arenas[Part::kUnet], shape);
  return *row_unet;
}

Stage* Pipeline::State::stage(Part part) const {
  switch (part) {
    case Part::kText: return text.get();
    case Part::kImage: return image.get();
    case Part::kUnet: return unet.get();
    case Part::kVae: return vae.get();
  }
  return nullptr;
}

void Pipeline::State::drop(Part part) {
  switch (part) {
    case Part::kText: return text.reset();
    case Part::kImage: return image.reset();
    case Part::kUnet:
      row_unet.reset();
      unet.reset();
      if (WeightStream* stream = residency.stream()) stream->leave();
      return;
    case Part::kVae: return vae.reset();
  }
}

void Pipeline::State::ready(Part part) {
  at_work_ = part;
  if (residency.offload() && !residency.resident(part))
    arenas[part].release();  // the stage before may need more
  const bool moved = residency.need(part), changed = components.refresh_terms(part);
  if (!moved && !changed) return;
  if (stage(part)) stage(part)->replan();
  if (part == Part::kUnet && row_unet) row_unet->replan();
}

void Pipeline::State::retry_in_wider_type(Part part, const NotFinite& found) {
  const DType now = components.dtype_of(part);
  require<GenerationError>(now != DType::kF32, found.model, ": ", found.count, " of ", found.of,
                           " values are not finite in ", now, "; are the weights damaged",
                           part == Part::kUnet && !controls_.empty() ? ", or those of a ControlNet?" : "?");
  const DType next = now == DType::kF16 ? DType::kBF16 : DType::kF32;
  log().warn("the {} overflowed in {}: run again in {}", found.model, now, next);
  drop(part);
  const uint64_t weights = residency.weight_bytes(part);
  keep_room_for(part, weights / dtype_size(now) * dtype_size(next) - weights);
  try {
    components.reload(part, next);
  } catch (const OutOfMemoryError& e) {
    log().warn("out of memory ({}): weights wait in host memory (--offload)", e.what());
    residency.begin_offload();
    components.reload(part, next);
  }
  residency.reloaded(part);
}

}  // namespace rocm_sd
