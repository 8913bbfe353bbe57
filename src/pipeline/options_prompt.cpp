// Options of prompts and of the pictures to draw.
#include <limits>

#include "pipeline/adapters.hpp"
#include "pipeline/embeddings.hpp"
#include "pipeline/option_tables.hpp"
#include "pipeline/regions.hpp"

namespace rocm_sd::option_tables {

std::vector<OptionRow> prompt_options() {
  return {
      {"prompt", "p", "Prompt", "TEXT", "what the picture shows; (word:1.2), [word] and BREAK as in A1111",
       text(&Request::prompt)},
      {"negative-prompt", "n", "Prompt", "TEXT",
       "what it does not show; \"\" is an empty text, absent what the model takes for none (SDXL: zeros)",
       text(&Request::negative_prompt)},
      {"image-prompt", "", "Prompt", "TEXT",
       "the prompt of one image of the batch, in place of --prompt; given once for each",
       [](OptionTargets& t, std::string_view v) { request_of(t).prompts.emplace_back(v); }, true},
      {"prompt-2", "", "Prompt", "TEXT", "what SDXL's second text encoder reads [the prompt]",
       text(&Request::prompt_2)},
      {"negative-prompt-2", "", "Prompt", "TEXT",
       "what SDXL's second text encoder reads [the negative prompt]", text(&Request::negative_prompt_2)},
      {"region", "", "Prompt", "[PLACE:]TEXT",
       "the prompt of a part of the picture: \"left,top,width,height: TEXT\" (shares, 0 to 1), \"mask.png: "
       "TEXT\" (white), or a row or column of --region-split; may be given several times",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).regions.push_back(parse_region(std::string(v)));
       },
       true},
      {"region-split", "", "Prompt", "HOW",
       "columns:1,2,1 or rows:1,1: ratios of the places of the regions that name none [not]",
       text(&Request::region_split)},
      {"region-base", "", "Prompt", "X", "share of the prompt where there are regions, 0 to 1 [0]",
       number(&Request::region_base, 0, 1)},
      {"clip-skip", "", "Prompt", "N",
       "stop N - 1 layers before the text encoder's last; 0: the model's own [0]",
       integer(&Request::clip_skip, 0, 12)},
      {"lora", "", "Prompt", "FILE[:W[:TE]][:lbw=LIST]",
       "LoRA to draw with, its weights for UNet and text encoders, and factors of them for each block; may "
       "be "
       "given several times",
       [](OptionTargets& t, std::string_view v) { request_of(t).loras.push_back(parse_lora_use(v)); }, true},
      {"lora-mode", "", "Prompt", "MODE",
       "merge: LoRAs into the weights; runtime: as terms beside them, others for each image of a batch "
       "[merge]",
       text(&Request::lora_mode)},
      {"embedding", "", "Prompt", "[NAME=]FILE",
       "textual inversion that the prompts may name; may be given several times",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).embeddings.push_back(parse_embedding_use(v));
       },
       true},
      {"emphasis", "", "Prompt", "MODE", "how (word:1.2) acts: original, no norm, ignore [original]",
       text(&Request::emphasis)},
      {"plain-prompt", "", "Prompt", "", "no weights, cut at 77 tokens: Diffusers' reading of a prompt",
       [](OptionTargets& t, std::string_view v) { request_of(t).plain_prompt = parse_flag(v); }},
  };
}

std::vector<OptionRow> picture_options() {
  return {
      {"width", "W", "Picture", "PX", "multiple of 8 [the model's own]",
       integer(&Request::width, 0, kMaxSide)},
      {"height", "H", "Picture", "PX", "multiple of 8 [the model's own]",
       integer(&Request::height, 0, kMaxSide)},
      {"batch", "b", "Picture", "N", "pictures in one UNet call [1]", integer(&Request::batch, 1, 64)},
      {"seed", "s", "Picture", "N", "-1: random; picture i uses seed + i [-1]",
       integer(&Request::seed, -1, std::numeric_limits<int64_t>::max())},
      {"tiling", "", "Picture", "", "each border fits to the opposite one: the picture tiles without seams",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).tiling_x = request_of(t).tiling_y = parse_flag(v);
       }},
      {"tiling-x", "", "Picture", "", "the left and the right border alone",
       [](OptionTargets& t, std::string_view v) { request_of(t).tiling_x = parse_flag(v); }},
      {"tiling-y", "", "Picture", "", "the upper and the lower border alone",
       [](OptionTargets& t, std::string_view v) { request_of(t).tiling_y = parse_flag(v); }},
  };
}

}  // namespace rocm_sd::option_tables
