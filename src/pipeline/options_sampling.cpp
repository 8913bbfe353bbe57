// Options of sampling and of guidance.
#include <limits>

#include "pipeline/option_tables.hpp"

namespace rocm_sd::option_tables {

std::vector<OptionRow> sampling_options() {
  return {
      {"steps", "", "Sampling", "N", "1 to 1000 [20]", integer(&Request::steps, 1, 1000)},
      {"cfg-scale", "c", "Sampling", "X", "guidance scale; 1, and for distilled models less: none [7]",
       number(&Request::cfg_scale, -100, 100)},
      {"sampler", "", "Sampling", "NAME", "\"DPM++ 2M\", euler_a, ...; `rocm-sd list samplers` [auto]",
       text(&Request::sampler)},
      {"schedule", "", "Sampling", "NAME",
       "karras, sgm_uniform, trailing, ...; `rocm-sd list schedules` [auto]", text(&Request::schedule)},
      {"sigmas", "", "Sampling", "LIST", "explicit noise levels, decreasing, with commas",
       [](OptionTargets& t, std::string_view v) { request_of(t).sigmas = parse_list(v); }},
      {"eta", "", "Sampling", "X", "stochastic share of ancestral, SDE and DDIM samplers [the sampler's own]",
       [](OptionTargets& t, std::string_view v) { request_of(t).eta = parse_number(v, 0, 10); }},
      {"guidance-rescale", "", "Sampling", "X", "0 to 1 [0]", number(&Request::guidance_rescale, 0, 1)},
      {"guidance-start", "", "Sampling", "X", "guidance acts from this share of the steps on [0]",
       number(&Request::guidance_start, 0, 1)},
      {"guidance-end", "", "Sampling", "X", "and before this one [1]", number(&Request::guidance_end, 0, 1)},
      {"negative-min-sigma", "", "Sampling", "X",
       "below this sigma every second call leaves guidance out (A1111's NGMS) [0]",
       number(&Request::negative_min_sigma, 0, 100)},
      {"negative-min-sigma-all", "", "Sampling", "", "every call, not every second one",
       [](OptionTargets& t, std::string_view v) { request_of(t).negative_min_sigma_all = parse_flag(v); }},
      {"dynamic-threshold", "", "Sampling", "X",
       "clean latents are clamped to this quantile, 0 to 1, and divided by it; 0: not [0]",
       number(&Request::dynamic_threshold, 0, 1)},
      {"dynamic-threshold-max", "", "Sampling", "X", "the most that the quantile may be [1]",
       number(&Request::dynamic_threshold_max, 1, 1000)},
      {"pag-scale", "", "Sampling", "X", "perturbed-attention guidance; 0: not [0]",
       number(&Request::pag_scale, 0, 100)},
      {"pag-layers", "", "Sampling", "LAYERS",
       "its layers by parts of their names with commas: mid, down_blocks.2, up_blocks.1.attentions.0, ... "
       "[mid]",
       text(&Request::pag_layers)},
      {"freeu", "", "Sampling", "B1,B2,S1,S2",
       "FreeU: factors of the up blocks' maps and of their skips [not]",
       [](OptionTargets& t, std::string_view v) { request_of(t).freeu = parse_list(v); }},
      {"freeu-v2", "", "Sampling", "B1,B2,S1,S2",
       "FreeU's second version: each pixel of the maps by its mean over the channels [not]",
       [](OptionTargets& t, std::string_view v) { request_of(t).freeu_v2 = parse_list(v); }},
      {"sag-scale", "", "Sampling", "X", "self-attention guidance; 0: not [0]",
       number(&Request::sag_scale, 0, 100)},
      {"mimic-scale", "", "Sampling", "X", "guidance with the values that this scale would give; 0: not [0]",
       number(&Request::mimic_scale, 0, 100)},
      {"mimic-percentile", "", "Sampling", "X", "deviations beyond it are clamped, 0 to 1 [1]",
       number(&Request::mimic_percentile, 0, 1)},
      {"rng", "", "Sampling", "NAME", "gpu: A1111's noise; cpu: PyTorch's on the CPU [gpu]",
       text(&Request::rng)},
      {"variation-seed", "", "Sampling", "N", "second seed to mix in; -1: random [-1]",
       integer(&Request::variation_seed, -1, std::numeric_limits<int64_t>::max())},
      {"seed-resize-width", "", "Sampling", "PX",
       "with seed-resize-height: the noise of a picture of this size in the middle [no]",
       integer(&Request::seed_resize_width, 0, kMaxSide)},
      {"seed-resize-height", "", "Sampling", "PX", "the same",
       integer(&Request::seed_resize_height, 0, kMaxSide)},
      {"variation-strength", "", "Sampling", "X", "0: seed alone, 1: variation seed alone [0]",
       number(&Request::variation_strength, 0, 1)},
  };
}

}  // namespace rocm_sd::option_tables
