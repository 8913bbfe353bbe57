// How a pipeline stays within its memory: it plans, and where the plan or the device says no, it saves: what
// is kept between pictures, then what helps the stage that takes the most: the VAE in bands, weights in host
// memory, the UNet's weights in 8 bits. Attention is not cut further: its kernels go through the keys in
// tiles and never hold the scores in memory.
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxBands = 32;

std::string megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

void Pipeline::State::ready(Part part) {
  at_work = part;
  if (residency.offload() && !residency.resident(part)) arena.release();  // the stage before may need more
  if (!residency.need(part)) return;
  switch (part) {
    case Part::kText: return text.forget();
    case Part::kUnet: return unet ? unet->replan() : void();
    case Part::kVae: return vae ? vae->replan() : void();
  }
}

void Pipeline::State::prepare_stages(const ResolvedRequest& r, const TokenRows& rows) {
  const auto tokens = rows.chunks * static_cast<int64_t>(rows.rows[0].front().ids.size());
  UnetShape shape{r.request.batch * r.tiles.batch, r.conditions, r.tiles.height, r.tiles.width, tokens};
  shape.perturbed = r.perturbed;
  for (const auto& control : controls) shape.controls.push_back(&control->model);
  if (!controls.empty()) shape.picture_height = r.height, shape.picture_width = r.width;
  if (!unet || !(unet->shape() == shape)) {
    unet.reset();  // give the buffers back before the new ones are made
    unet = std::make_unique<UnetStage>(components, arena, shape);
  }
  if (vae && (vae->height() != r.latent_height || vae->width() != r.latent_width)) {
    vae.reset();
    vae_bands = 1;
  }
  if (!vae) vae = std::make_unique<VaeStage>(components, arena, r.latent_height, r.latent_width, vae_bands);
}

MemoryPlan Pipeline::State::measure(const ResolvedRequest& r, const TokenRows& rows) {
  prepare_stages(r, rows);
  const bool encoder = r.request.init_image.has_value() || components.is_inpainting();
  if (!vae->planned(encoder)) {
    if (encoder) components.need_encoder();
    ready(Part::kVae);
  }
  MemoryPlan out;
  out.vae = vae->plan(encoder);
  if (!unet->planned()) ready(Part::kUnet);
  out.unet = unet->plan();
  if (!text.planned(rows, r.request.clip_skip)) ready(Part::kText);
  out.text = text.plan(rows, r.request.clip_skip);
  const uint64_t latents =
      16 * static_cast<uint64_t>(r.request.batch * r.latent_height * r.latent_width * 4) * sizeof(float);
  out.buffers = text.buffer_bytes() + unet->buffer_bytes() + vae->buffer_bytes() + latents;
  if (r.request.tile_size > 0)
    out.buffers +=
        tiled_buffer_bytes(r.tiles, r.request.batch * r.conditions, r.latent_height, r.latent_width);
  const std::pair<Part, uint64_t> stages[] = {
      {Part::kText, out.text}, {Part::kUnet, out.unet}, {Part::kVae, out.vae}};
  for (const auto& [part, bytes] : stages) {
    const uint64_t weights = residency.weight_bytes(part);
    if (!residency.offload()) {
      out.weights += weights;
      out.arena = std::max(out.arena, bytes);
    } else if (weights + bytes > out.weights + out.arena) {  // of the stage that takes the most
      out.weights = weights;
      out.arena = bytes;
    }
  }
  out.weights += components.bases.bytes();
  out.vae_bands = static_cast<int>(vae->bands());
  out.offload = residency.offload();
  return out;
}

// What the device can hold for this pipeline; part of a GPU's memory is the driver's.
uint64_t Pipeline::State::available_memory() const {
  if (vram_budget > 0) return vram_budget;
  const Device& device = *components.device;
  if (device.kind() == DeviceKind::kHost) return std::numeric_limits<uint64_t>::max();
  return (device.memory().free + device.allocated()) / 100 * 97;
}

void Pipeline::State::drop_caches() {
  unet.reset();
  vae.reset();
  text.forget();
  components.loaded_encoder.reset();
  components.loaded_tiny_encoder.reset();
  keep_controls(controls);
  components.bases.clear();
  arena.release();
  scratch.release();
}

// Who holds the device's memory, and what would take less of it: for an error's end.
std::string Pipeline::State::memory_advice() const {
  std::string text;
  const Device& device = *components.device;
  if (device.kind() != DeviceKind::kHost) {
    const MemoryInfo memory = device.memory();
    const uint64_t own = device.allocated(), held = memory.total - std::min(memory.total, memory.free);
    text = concat("; of the device's ", megabytes(memory.total), " other programs and the driver hold ",
                  megabytes(held - std::min(held, own)), ", this one ", megabytes(own), ", ",
                  megabytes(memory.free), " are free");
  }
  text += "; what takes less: a smaller picture or batch";
  if (!residency.offload()) text += ", weights in host memory (--offload)";
  if (!components.weights && device.kind() != DeviceKind::kHost)
    text += ", the UNet's weights in 8 bits (--weights int8)";
  return text;
}

// Weights of the UNet in 8 bits, where the user left their form to us and the device holds them so. The
// picture is another one, by little (docs/explanation/eight-bit-weights.md), so that this comes last and says
// so.
bool Pipeline::State::shrink_weights() {
  if (!components.weights_are_auto || components.weights || components.device->kind() == DeviceKind::kHost ||
      components.dtype_of(Part::kUnet) == DType::kF32)
    return false;
  const DType dtype = components.dtype_of(Part::kUnet);
  unet.reset();
  arena.release();
  components.weights = {.eight_bit = DType::kI8};
  components.loaded_for_offload = components.loaded_for_offload || residency.offload();
  components.reload(Part::kUnet, dtype);
  residency.reloaded(Part::kUnet);
  return true;
}

// The fewest bands that fit, or those that take the least.
MemoryPlan Pipeline::State::choose_bands(const ResolvedRequest& r, const TokenRows& rows,
                                         const MemoryPlan& whole, uint64_t most) {
  const auto with_bands = [&](int64_t bands) {
    vae_bands = bands;
    vae.reset();
    return measure(r, rows);
  };
  int64_t best = vae_bands;
  uint64_t least = whole.vae;
  for (int64_t bands = 2 * vae_bands; bands <= std::min(kMaxBands, r.latent_height); bands *= 2) {
    const MemoryPlan plan = with_bands(bands);
    if (plan.total() <= most) return plan;
    if (plan.vae >= least) continue;
    least = plan.vae;
    best = bands;
  }
  return with_bands(best);
}

MemoryPlan Pipeline::State::plan(const ResolvedRequest& r, const TokenRows& rows) {
  refused = false;
  MemoryPlan plan = measure(r, rows);
  const uint64_t most = available_memory(), first = plan.total();
  if (first <= most) return plan;
  const char* limit = vram_budget > 0 ? "the budget is " : "the device has ";
  const auto note = [&](const std::string& saving) {
    log().warn("memory: {} planned, {}{}: {}", megabytes(plan.total()), limit, megabytes(most), saving);
  };
  if (!caches_dropped) {
    note("dropping what is kept between pictures");
    drop_caches();
    caches_dropped = true;
    plan = measure(r, rows);
  }
  if (plan.total() > most && plan.vae > std::max(plan.text, plan.unet) && !components.tiny_vae) {
    const MemoryPlan banded = choose_bands(r, rows, plan, most);
    if (vae_bands > 1) note(concat("the VAE works in ", vae_bands, " bands"));
    plan = banded;
  }
  if (plan.total() > most && !residency.offload()) {
    note("weights wait in host memory (--offload)");
    residency.begin_offload();
    plan = measure(r, rows);
  }
  const auto unet_takes_most = [&] {
    return residency.weight_bytes(Part::kUnet) + plan.unet >= residency.weight_bytes(Part::kVae) + plan.vae;
  };
  if (plan.total() > most && unet_takes_most() && shrink_weights()) {
    note("the UNet's weights in 8 bits (--weights int8), which changes the picture a little");
    plan = measure(r, rows);
  }
  if (plan.total() > most && !components.tiny_vae && residency.offload() && !unet_takes_most()) {
    plan = choose_bands(r, rows, plan, most);
    if (vae_bands > 1) note(concat("the VAE works in ", vae_bands, " bands"));
  }
  refused = plan.total() > most;
  require<OutOfMemoryError>(!refused, "memory: the picture takes ", megabytes(plan.total()),
                            " with every saving (weights ", megabytes(plan.weights), ", arena ",
                            megabytes(plan.arena), ", buffers ", megabytes(plan.buffers), "), ", limit,
                            megabytes(most), memory_advice());
  return plan;
}

bool Pipeline::State::save_memory(const std::string& reason) {
  const auto note = [&](const std::string& saving) {
    log().warn("out of memory ({}): {}, then once more", reason, saving);
  };
  // Bands make the VAE's stage smaller and no other.
  const bool bands_help = at_work == Part::kVae && !components.tiny_vae && vae_bands < kMaxBands / 2;
  if (!caches_dropped) {
    note("dropping what is kept between pictures");
  } else if (bands_help) {
    vae_bands = vae_bands == 1 ? 4 : 4 * vae_bands;
    note(concat("the VAE works in ", vae_bands, " bands"));
  } else if (!residency.offload()) {
    note("weights wait in host memory (--offload)");
    residency.begin_offload();
  } else if (at_work == Part::kUnet && shrink_weights()) {
    note("the UNet's weights in 8 bits (--weights int8), which changes the picture a little");
  } else {
    return false;
  }
  caches_dropped = true;
  drop_caches();
  return true;
}

void Pipeline::State::merge_adapters(std::vector<ActiveAdapter> wanted) {
  const auto uses_of = [](const std::vector<ActiveAdapter>& list, Part part) {
    std::vector<std::pair<Component, std::vector<AdapterUse>>> out;
    for (const Component component : {Component::kUnet, Component::kTextEncoder, Component::kTextEncoder2})
      if ((component == Component::kUnet) == (part == Part::kUnet))
        out.emplace_back(component, adapter_uses(list, component));
    return out;
  };
  const bool whole = std::exchange(weights_unsure, true);
  const std::vector<ActiveAdapter> before = std::exchange(components.adapters, std::move(wanted));
  for (const Part part : {Part::kText, Part::kUnet}) {
    const auto old_uses = uses_of(before, part), new_uses = uses_of(components.adapters, part);
    if (!whole && old_uses == new_uses) continue;
    if (part == Part::kText) text.forget();
    if (part == Part::kUnet) unet.reset();
    // Weights that wait in host memory are there in every layout that they had: they are read anew.
    if (whole || residency.offload() || !residency.resident(part))
      components.reload(part, components.dtype_of(part));
    else
      components.update(part, before);
    residency.reloaded(part);
  }
  weights_unsure = false;
}

bool Pipeline::State::widen(Part part, const std::string& what) {
  const DType now = components.dtype_of(part);
  if (now == DType::kF32) return false;
  const DType next = now == DType::kF16 ? DType::kBF16 : DType::kF32;
  log().warn("{} overflowed in {}: run again in {}", what, now, next);
  if (part == Part::kText) text.forget();
  if (part == Part::kUnet) unet.reset();
  if (part == Part::kVae) vae.reset();
  try {
    components.reload(part, next);
  } catch (const OutOfMemoryError& e) {
    log().warn("out of memory ({}): weights wait in host memory (--offload)", e.what());
    residency.begin_offload();
    components.loaded_for_offload = true;
    components.reload(part, next);
  }
  residency.reloaded(part);
  return true;
}

}  // namespace rocm_sd
