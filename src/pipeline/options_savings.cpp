// Options of what trades the picture for time.
#include "pipeline/option_tables.hpp"

namespace rocm_sd::option_tables {
namespace {

// "3", or "3:1" with the branch.
void set_deep_cache(Savings& savings, std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  savings.deep_cache = static_cast<int>(parse_integer(text.substr(0, colon), 0, 100));
  savings.deep_cache_branch =
      colon < text.size() ? static_cast<int>(parse_integer(text.substr(colon + 1), 0, 100)) : 0;
}

// "0.5", or "0.5:2" with the smallest maps.
void set_token_merge(Savings& savings, std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  savings.token_merge = parse_number(text.substr(0, colon), 0, 0.75);
  savings.token_merge_downsample =
      colon < text.size() ? static_cast<int>(parse_integer(text.substr(colon + 1), 1, 8)) : 1;
}

}  // namespace

std::vector<OptionRow> savings_options() {
  return {
      {"deep-cache", "", "Savings", "N[:BRANCH]",
       "DeepCache: one of N calls of the UNet runs whole, the others its shallow layers, down to the skip "
       "connection BRANCH, 0 being the shallowest; 0: not [0]",
       [](OptionTargets& t, std::string_view v) { set_deep_cache(request_of(t).savings, v); }},
      {"t-gate", "", "Savings", "N",
       "T-GATE: after N steps the text's attentions stay as they are, and guidance is left out; 0: not [0]",
       [](OptionTargets& t, std::string_view v) {
         request_of(t).savings.t_gate = static_cast<int>(parse_integer(v, 0, 1000));
       }},
      {"sada", "", "Savings", "",
       "SADA: no call of the UNet where the steps before foretell what it would give",
       [](OptionTargets& t, std::string_view v) { request_of(t).savings.sada = parse_flag(v); }},
      {"token-merge", "", "Savings", "SHARE[:DOWN]",
       "token merging (ToMe): this share of the pixels, up to 0.75, is merged into others before self "
       "attention, in "
       "maps that are at most DOWN (1, 2, 4, 8) times smaller than the latents; 0: not [0]",
       [](OptionTargets& t, std::string_view v) { set_token_merge(request_of(t).savings, v); }},
  };
}

}  // namespace rocm_sd::option_tables
