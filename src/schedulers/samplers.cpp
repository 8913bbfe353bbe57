// The table of samplers: one row each. Names are those of A1111, ComfyUI, sd.cpp, Diffusers and old A1111.
#include <algorithm>
#include <string>

#include "schedulers/names.hpp"
#include "schedulers/sampler.hpp"
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// Two calls a step, but one in the last, which goes to sigma 0.
int two_calls(int steps) { return 2 * steps - 1; }
// Restart's plan: A1111 spreads the steps asked for over the path and its repetitions.
int one_more(int steps) { return steps > 1 ? steps + 1 : 1; }

constexpr auto kVp = LatentSpace::kVariancePreserving;

const std::vector<SamplerRow>& rows() {
  static const std::vector<SamplerRow> kRows = {
      {.name = "euler", .label = "Euler", .aliases = {"k_euler", "EulerDiscrete"}, .sample = sample_euler},
      {.name = "euler_a",
       .label = "Euler a",
       .aliases = {"euler_ancestral", "k_euler_a", "k_euler_ancestral", "EulerAncestralDiscrete"},
       .sample = sample_euler_ancestral,
       .eta = 1},
      {.name = "heun",
       .label = "Heun",
       .aliases = {"k_heun", "HeunDiscrete"},
       .sample = sample_heun,
       .unet_calls = two_calls},
      {.name = "dpm2",
       .label = "DPM2",
       .aliases = {"dpm_2", "k_dpm_2", "KDPM2Discrete"},
       .sample = sample_dpm2,
       .schedule = ScheduleKind::kKarras,
       .discard_penultimate = true,
       .unet_calls = two_calls},
      {.name = "dpm2_a",
       .label = "DPM2 a",
       .aliases = {"dpm_2_ancestral", "k_dpm_2_a", "k_dpm_2_ancestral", "KDPM2AncestralDiscrete"},
       .sample = sample_dpm2_ancestral,
       .schedule = ScheduleKind::kKarras,
       .discard_penultimate = true,
       .eta = 1,
       .unet_calls = two_calls},
      {.name = "lms",
       .label = "LMS",
       .aliases = {"k_lms", "LMSDiscrete"},
       .sample = sample_lms,
       .order = 4,
       .max_order = 4},
      {.name = "dpmpp_2s_a",
       .label = "DPM++ 2S a",
       .aliases = {"dpmpp_2s_ancestral", "dpm++2s_a", "k_dpmpp_2s_a"},
       .sample = sample_dpmpp_2s_ancestral,
       .schedule = ScheduleKind::kKarras,
       .eta = 1,
       .unet_calls = two_calls},
      {.name = "dpmpp_2s",
       .label = "DPM++ 2S",
       .aliases = {"DPMSolverSinglestep", "dpmpp_singlestep"},
       .sample = sample_dpmpp_singlestep,
       .schedule = ScheduleKind::kKarras,
       .order = 2,
       .max_order = 3,
       .lower_order_final = true},
      {.name = "dpmpp_2m",
       .label = "DPM++ 2M",
       .aliases = {"dpm++2m", "k_dpmpp_2m", "DPMSolverMultistep"},
       .sample = sample_dpmpp_2m,
       .schedule = ScheduleKind::kKarras,
       .order = 2,
       .max_order = 3},
      {.name = "dpmpp_2m_v2",
       .label = "DPM++ 2M v2",
       .aliases = {"dpm++2mv2"},
       .sample = sample_dpmpp_2m_v2,
       .schedule = ScheduleKind::kKarras},
      {.name = "dpmpp_sde",
       .label = "DPM++ SDE",
       .aliases = {"dpm++sde", "k_dpmpp_sde", "dpmpp_sde_gpu", "DPMSolverSDE"},
       .sample = sample_dpmpp_sde,
       .schedule = ScheduleKind::kKarras,
       .eta = 1,
       .step_noise = StepNoise::kBrownian,
       .unet_calls = two_calls},
      {.name = "dpmpp_2m_sde",
       .label = "DPM++ 2M SDE",
       .aliases = {"dpm++2m_sde", "dpm++2m_sde_bt", "k_dpmpp_2m_sde", "dpmpp_2m_sde_gpu"},
       .sample = sample_dpmpp_2m_sde,
       .schedule = ScheduleKind::kExponential,
       .eta = 1,
       .step_noise = StepNoise::kBrownian},
      {.name = "dpmpp_2m_sde_heun",
       .label = "DPM++ 2M SDE Heun",
       .aliases = {"k_dpmpp_2m_sde_heun", "dpmpp_2m_sde_heun_gpu"},
       .sample = sample_dpmpp_2m_sde,
       .schedule = ScheduleKind::kExponential,
       .eta = 1,
       .solver = SolverType::kHeun,
       .step_noise = StepNoise::kBrownian},
      {.name = "dpmpp_3m_sde",
       .label = "DPM++ 3M SDE",
       .aliases = {"k_dpmpp_3m_sde", "dpmpp_3m_sde_gpu"},
       .sample = sample_dpmpp_3m_sde,
       .schedule = ScheduleKind::kExponential,
       .discard_penultimate = true,
       .eta = 1,
       .step_noise = StepNoise::kBrownian},
      {.name = "dpm_fast",
       .label = "DPM fast",
       .aliases = {"k_dpm_fast"},
       .sample = sample_dpm_fast,
       .eta = 1},
      {.name = "restart",
       .label = "Restart",
       .aliases = {},
       .sample = sample_restart,
       .schedule = ScheduleKind::kKarras,
       .unet_calls = two_calls},
      {.name = "res_multistep", .label = "RES multistep", .aliases = {}, .sample = sample_res_multistep},
      {.name = "ipndm",
       .label = "iPNDM",
       .aliases = {"IPNDM"},
       .sample = sample_ipndm,
       .order = 4,
       .max_order = 4},
      {.name = "ipndm_v",
       .label = "iPNDM_v",
       .aliases = {},
       .sample = sample_lms,
       .order = 4,
       .max_order = 4},
      {.name = "deis",
       .label = "DEIS",
       .aliases = {"DEISMultistep"},
       .sample = sample_deis,
       .order = 3,
       .max_order = 3,
       .lower_order_final = true},
      {.name = "uni_pc",
       .label = "UniPC",
       .aliases = {"UniPCMultistep"},
       .sample = sample_unipc,
       .discard_penultimate = true,
       .order = 3,
       .max_order = 3,
       .solver = SolverType::kBh1,
       .lower_order_final = true},
      {.name = "uni_pc_bh2",
       .label = "UniPC bh2",
       .aliases = {},
       .sample = sample_unipc,
       .discard_penultimate = true,
       .order = 3,
       .max_order = 3,
       .solver = SolverType::kBh2,
       .lower_order_final = true},
      {.name = "ddim",
       .label = "DDIM",
       .aliases = {"DDIMParallel"},
       .sample = sample_ddim,
       .schedule = ScheduleKind::kDdim,
       .end_at_sigma_min = true,
       .space = kVp},
      {.name = "ddim_trailing",
       .label = "DDIM trailing",
       .aliases = {},
       .sample = sample_ddim,
       .schedule = ScheduleKind::kTrailing,
       .end_at_sigma_min = true,
       .space = kVp},
      {.name = "ddpm",
       .label = "DDPM",
       .aliases = {"DDPMParallel"},
       .sample = sample_ddpm,
       .schedule = ScheduleKind::kLeading,
       .space = kVp,
       .eta = 1},
      {.name = "plms",
       .label = "PLMS",
       .aliases = {"PNDM"},
       .sample = sample_plms,
       .schedule = ScheduleKind::kDdim,
       .end_at_sigma_min = true,
       .space = kVp,
       .unet_calls = one_more},
      {.name = "lcm",
       .label = "LCM",
       .aliases = {"k_lcm"},
       .sample = sample_lcm,
       .schedule = ScheduleKind::kLcm,
       .space = kVp,
       .eta = 1},
      {.name = "tcd",
       .label = "TCD",
       .aliases = {},
       .sample = sample_tcd,
       .schedule = ScheduleKind::kLcm,
       .space = kVp,
       .eta = 0.3},
  };
  return kRows;
}

// Diffusers' class names end in it.
std::string without_suffix(std::string name, std::string_view suffix) {
  if (name.size() > suffix.size() && name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

}  // namespace

std::span<const SamplerRow> samplers() { return rows(); }

const SamplerRow& find_sampler(std::string_view name) {
  const std::string wanted = without_suffix(normalized_name(name), "scheduler");
  for (const SamplerRow& row : rows()) {
    if (wanted == normalized_name(row.name) || wanted == normalized_name(row.label)) return row;
    for (const std::string_view alias : row.aliases)
      if (wanted == normalized_name(alias)) return row;
  }
  std::vector<std::string> known;
  for (const SamplerRow& row : rows()) known.emplace_back(row.label);
  throw_unknown_name("sampler", name, known);
}

}  // namespace rocm_sd
