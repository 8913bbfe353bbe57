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
  };
}

}  // namespace rocm_sd::option_tables
