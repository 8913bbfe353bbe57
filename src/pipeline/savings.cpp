#include "pipeline/savings.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace rocm_sd {
namespace {

// What stands beside the UNet or divides its maps keeps nothing from call to call.
void check_company(const ResolvedRequest& r, const char* name) {
  const GenerateRequest& q = r.request;
  require<UsageError>(q.controls.empty(), name, ": not with ControlNets and T2I-Adapters");
  require<UsageError>(q.tile_size == 0, name,
                      ": not with tile-size, whose windows have no maps of their own");
  require<UsageError>(q.sag_scale == 0, name,
                      ": not with sag-scale, which needs the middle block in each call");
}

void check_deep_cache(const ResolvedRequest& r, const Components& c) {
  const Savings& s = r.request.savings;
  require<UsageError>(s.deep_cache >= 0 && s.deep_cache <= 100,
                      "deep-cache: expected every 2 to 100 calls, or 0 for none, got ", s.deep_cache);
  if (s.deep_cache <= 1) return;
  const auto skips = static_cast<int>(c.unet->skip_count());
  require<UsageError>(s.deep_cache_branch >= 0 && s.deep_cache_branch < skips - 1,
                      "deep-cache: this UNet has the branches 0 to ", skips - 2, ", got ",
                      s.deep_cache_branch);
  check_company(r, "deep-cache");
}

void check_t_gate(const ResolvedRequest& r) {
  const Savings& s = r.request.savings;
  require<UsageError>(s.t_gate >= 0 && s.t_gate <= 1000,
                      "t-gate: expected 1 to 1000 steps, or 0 for none, got ", s.t_gate);
  if (s.t_gate == 0) return;
  check_company(r, "t-gate");
  require<UsageError>(
      r.conditions <= 2,
      "t-gate: defined for one prompt and its negative prompt; not with AND, regions, pag-scale "
      "and instruct-pix2pix models");
}

void check_token_merge(const ResolvedRequest& r) {
  const Savings& s = r.request.savings;
  require<UsageError>(s.token_merge >= 0 && s.token_merge <= 0.75,
                      "token-merge: expected a share from 0 to 0.75, got ", s.token_merge);
  const int by = s.token_merge_downsample;
  require<UsageError>(by == 1 || by == 2 || by == 4 || by == 8,
                      "token-merge: expected maps down to 1, 2, 4 or 8 times smaller than the latents, got ",
                      by);
  require<UsageError>(s.token_merge == 0 || r.request.sag_scale == 0,
                      "token-merge: not with sag-scale, which reads the attention of every pixel");
}

void check_sada(const ResolvedRequest& r) {
  if (!r.request.savings.sada) return;
  const SamplerRow& sampler = *r.sampling.sampler;
  const bool draws_noise = r.sampling.options.eta.value_or(0) > 0 || r.sampling.options.s_churn > 0;
  require<UsageError>(
      sampler.unet_calls(100) == 100 && !draws_noise && !sampler.uses_negative,
      "sada: for samplers that draw no noise and call the UNet once in each step (Euler, DPM++ 2M, "
      "DDIM, UniPC, ...), not ",
      sampler.label);
  require<UsageError>(r.request.mimic_scale == 0, "sada: not with mimic-scale");
}

}  // namespace

bool leaves_guidance_out(const GenerateRequest& q) {
  return q.guidance_start > 0 || q.guidance_end < 1 || q.negative_min_sigma > 0 || q.savings.t_gate > 0;
}

void resolve_savings(ResolvedRequest& r, const Components& c) {
  check_deep_cache(r, c);
  check_t_gate(r);
  check_sada(r);
  check_token_merge(r);
  const GenerateRequest& q = r.request;
  require<UsageError>(!(q.tiling_x || q.tiling_y) || q.tile_size == 0,
                      "tiling: not with tile-size, whose windows do not reach the other border");
  r.drops_negative = leaves_guidance_out(q) && r.uses_negative() && !c.is_instruct();
}

// All ranks foretell the same steps, for they have the same latents, and each keeps maps of its own
// conditions and rows. T-GATE would leave the ranks of the negative prompt without work. Ranks that share
// each layer compute whole steps on whole maps.
void check_together(const GenerateRequest& q, const Ranks& ranks) {
  require<UsageError>(q.savings.token_merge == 0 || ranks.division() == Division::kConditions,
                      "token-merge: on several devices with --split guidance or images alone, for a "
                      "device has to see a whole map");
  if (ranks.division() == Division::kTensors) return;
  require<UsageError>(
      q.savings.t_gate == 0,
      "t-gate: not with a picture that several devices draw together; expected --split images or tensor");
  require<UsageError>(!q.savings.active() || (ranks.division() != Division::kLayers && !ranks.exact_calls()),
                      "deep-cache, sada: not with --split pipeline, displaced and guidance-displaced; "
                      "expected guidance, rows, tensor or images");
  require<UsageError>(
      !(q.tiling_x || q.tiling_y),
      "tiling: not with a picture that several devices draw together; expected --split images or tensor");
}

std::vector<std::string> describe_savings(const ResolvedRequest& r, const UnetCalls& calls) {
  const Savings& s = r.request.savings;
  std::vector<std::string> out;
  if (s.deep_cache > 1)
    out.push_back(
        concat("deep-cache: ", calls.shallow, " of ", calls.all, " calls of the UNet were shallow"));
  if (s.t_gate > 0)
    out.push_back(
        concat("t-gate: ", calls.gated, " of ", calls.all, " calls added means of the text's attention"));
  if (s.sada)
    out.push_back(concat("sada: ", calls.skipped, " of ", calls.all + calls.skipped, " calls were foretold"));
  if (s.token_merge > 0)
    out.push_back(
        fmt::format("token-merge: {:g} % of the tokens were merged before self attention, in maps {}",
                    100 * s.token_merge,
                    s.token_merge_downsample == 1
                        ? "of the latents' size"
                        : concat("down to 1/", s.token_merge_downsample, " of the latents' sides")));
  if (calls.one_sided > 0)
    out.push_back(concat("guidance: left out of ", calls.one_sided, " of ", calls.all, " calls"));
  if (!out.empty())
    out.push_back(fmt::format("{:.1f} % of the UNet's operations were computed",
                              100 * calls.operations / calls.operations_if_whole));
  return out;
}

}  // namespace rocm_sd
