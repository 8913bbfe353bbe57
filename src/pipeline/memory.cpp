// How a pipeline stays within its memory: it plans, and where the plan or the device says no, it saves: what
// is kept between images, then what helps the stage that takes the most: the VAE in bands, weights in host
// memory, the UNet's weights in 8 bits. Attention is not cut further: its kernels go through the keys in
// tiles and never store the scores in memory.
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "pipeline/state.hpp"
#include "pipeline/tiles.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxBands = 32;

std::string megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

void Pipeline::State::note_memory() {
  // On the CPU what waits off the device lies in the same memory: there is nothing to tell apart.
  if (residency.offload() && components.device == &host_device()) return;
  device_peak_ = std::max(device_peak_, components.device->allocated());
}

namespace {

// What the stages hand to each other: the text's states, and latents, of which a sampler keeps several.
uint64_t handed_over_bytes(const PreparedRequest& r, const UNetConfig& config, int64_t tokens) {
  const int64_t text = r.rows.prompts * (tokens * config.context_width() + config.added_width);
  const int64_t latents = 16 * r.request.batch * r.latent_height * r.latent_width * 4;
  return static_cast<uint64_t>(text + latents) * sizeof(float);
}

}  // namespace

MemoryPlan Pipeline::State::measure(const PreparedRequest& r) {
  make_stages(r);
  vae->need_encoder(r.request.init_image || components.is_inpainting());
  PerPart<uint64_t> arenas;
  MemoryPlan out;
  for (const Part part : {Part::kVae, Part::kUnet, Part::kImage, Part::kText}) {
    if (!stage(part)) continue;
    if (!stage(part)->planned()) ready(part);
    arenas[part] = stage(part)->plan();
    out.buffers += stage(part)->buffer_bytes();
  }
  out.text = arenas[Part::kText];
  out.unet = arenas[Part::kUnet];
  out.vae = arenas[Part::kVae];
  out.image = arenas[Part::kImage];
  out.buffers += handed_over_bytes(r, components.unet->config(), unet->shape().tokens);
  if (r.request.tile_size > 0)
    out.buffers +=
        tiled_buffer_bytes(r.tiles, r.request.batch * r.conditions, r.latent_height, r.latent_width);
  for (const Part part : kParts) {
    const uint64_t weights = residency.weight_bytes(part);
    if (!residency.offload()) {
      out.weights += weights;
      out.arena = std::max(out.arena, arenas[part]);
    } else if (weights + arenas[part] > out.weights + out.arena) {  // of the stage that takes the most
      out.weights = weights;
      out.arena = arenas[part];
    }
  }
  out.weights += components.bases.bytes() + components.term_bytes();
  if (components.device->kind() == DeviceKind::kHost) out.weights += components.originals->bytes();
  out.vae_bands = static_cast<int>(vae->bands());
  out.offload = residency.offload();
  return out;
}

// What the device can hold for this pipeline; part of a GPU's memory is the driver's.
uint64_t Pipeline::State::available_memory() const {
  if (vram_budget_ > 0) return vram_budget_;
  const Device& device = *components.device;
  if (device.kind() == DeviceKind::kHost) return std::numeric_limits<uint64_t>::max();
  return (device.memory().free + device.allocated()) / 100 * 97;
}

void Pipeline::State::drop_caches() {
  for (const Part part : kParts) drop(part);
  components.loaded_encoder.reset();
  components.loaded_tiny_encoder.reset();
  keep_controls(controls_);
  std::vector<std::shared_ptr<LoadedImageModel>> image_models = ip_adapters_;
  image_models.insert(image_models.end(), image_encoders_.begin(), image_encoders_.end());
  keep_image_models(image_models);
  components.bases.clear();
  if (components.device->kind() == DeviceKind::kHost) components.originals->clear();
  upscaler_.reset();
  arena.release();
  scratch.release();
}

// Who has the device's memory, and what would take less of it: for an error's end.
std::string Pipeline::State::memory_advice() const {
  std::string text;
  const Device& device = *components.device;
  if (device.kind() != DeviceKind::kHost) {
    const MemoryInfo memory = device.memory();
    const uint64_t own = device.allocated(), taken = memory.total - std::min(memory.total, memory.free);
    text = concat("; of the device's ", megabytes(memory.total), " other programs and the driver hold ",
                  megabytes(taken - std::min(taken, own)), ", this one ", megabytes(own), ", ",
                  megabytes(memory.free), " are free");
  }
  text += "; what takes less: a smaller picture or batch";
  if (!residency.offload()) text += ", weights in host memory (--offload)";
  if (!components.weights && device.kind() != DeviceKind::kHost)
    text += ", the UNet's weights in 8 bits (--weights int8)";
  return text;
}

// Weights of the UNet in 8 bits, where the user left their form to us and the device stores them so. The
// image is another one, by little (docs/explanation/eight-bit-weights.md), so that this comes last and says
// so.
bool Pipeline::State::shrink_weights() {
  if (!components.weights_are_auto || components.weights || components.device->kind() == DeviceKind::kHost ||
      components.dtype_of(Part::kUnet) == DType::kF32)
    return false;
  const DType dtype = components.dtype_of(Part::kUnet);
  drop(Part::kUnet);
  arena.release();
  components.weights = {.eight_bit = DType::kI8};
  components.loaded_for_offload = components.loaded_for_offload || residency.offload();
  components.reload(Part::kUnet, dtype);
  residency.reloaded(Part::kUnet);
  return true;
}

// The fewest bands that fit, or those that take the least.
MemoryPlan Pipeline::State::choose_bands(const PreparedRequest& r, const MemoryPlan& whole,
                                         uint64_t max_bytes) {
  const auto with_bands = [&](int64_t bands) {
    vae_shape_.bands = bands;
    return measure(r);
  };
  int64_t best = vae_shape_.bands;
  uint64_t least = whole.vae;
  for (int64_t bands = 2 * vae_shape_.bands; bands <= std::min(kMaxBands, r.latent_height); bands *= 2) {
    const MemoryPlan plan = with_bands(bands);
    if (plan.total() <= max_bytes) return plan;
    if (plan.vae >= least) continue;
    least = plan.vae;
    best = bands;
  }
  return with_bands(best);
}

MemoryPlan Pipeline::State::plan_within_budget(const PreparedRequest& r) {
  refused_ = false;
  MemoryPlan plan = measure(r);
  const uint64_t most = available_memory(), first = plan.total();
  if (first <= most) return plan;
  const char* limit = vram_budget_ > 0 ? "the budget is " : "the device has ";
  const auto note = [&](const std::string& saving) {
    log().warn("memory: {} planned, {}{}: {}", megabytes(plan.total()), limit, megabytes(most), saving);
  };
  if (!caches_dropped_) {
    note("dropping what is kept between images");
    drop_caches();
    caches_dropped_ = true;
    plan = measure(r);
  }
  if (plan.total() > most && plan.vae > std::max(plan.text, plan.unet) && !components.tiny_vae) {
    const MemoryPlan banded = choose_bands(r, plan, most);
    if (vae_shape_.bands > 1) note(concat("the VAE works in ", vae_shape_.bands, " bands"));
    plan = banded;
  }
  if (plan.total() > most && !residency.offload()) {
    note("weights wait in host memory (--offload)");
    residency.begin_offload();
    plan = measure(r);
  }
  const auto unet_takes_most = [&] {
    return residency.weight_bytes(Part::kUnet) + plan.unet >= residency.weight_bytes(Part::kVae) + plan.vae;
  };
  if (plan.total() > most && unet_takes_most() && shrink_weights()) {
    note("the UNet's weights in 8 bits (--weights int8), which changes the image a little");
    plan = measure(r);
  }
  if (plan.total() > most && !components.tiny_vae && residency.offload() && !unet_takes_most()) {
    plan = choose_bands(r, plan, most);
    if (vae_shape_.bands > 1) note(concat("the VAE works in ", vae_shape_.bands, " bands"));
  }
  refused_ = plan.total() > most;
  require<OutOfMemoryError>(!refused_, "memory: the image takes ", megabytes(plan.total()),
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
  const bool bands_help = at_work_ == Part::kVae && !components.tiny_vae && vae_shape_.bands < kMaxBands / 2;
  if (!caches_dropped_) {
    note("dropping what is kept between images");
  } else if (bands_help) {
    vae_shape_.bands = vae_shape_.bands == 1 ? 4 : 4 * vae_shape_.bands;
    note(concat("the VAE works in ", vae_shape_.bands, " bands"));
  } else if (!residency.offload()) {
    note("weights wait in host memory (--offload)");
    residency.begin_offload();
  } else if (at_work_ == Part::kUnet && shrink_weights()) {
    note("the UNet's weights in 8 bits (--weights int8), which changes the image a little");
  } else {
    return false;
  }
  caches_dropped_ = true;
  drop_caches();
  return true;
}

}  // namespace rocm_sd
