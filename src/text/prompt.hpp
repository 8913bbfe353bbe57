// AUTOMATIC1111's prompt language: attention weights, BREAK and <lora:...> tags.
//
// Grammar (documented in the web UI's wiki, "Attention/emphasis"): (a) weighs a by 1.1, [a] by 1/1.1, (a:1.3)
// by 1.3; brackets nest and multiply; \( \) \[ \] \\ are literal; BREAK as a word starts a new chunk. Its
// habits are kept: an open bracket without its partner counts to the end; a closing one without is text; a
// number is digits and points with an optional sign between ':' and ')', with white space around it (as since
// version 1.6 of the web UI), so (a: 1.2) weighs a by 1.2, and (a:1e3) and (a:nan) are text weighed by 1.1;
// BREAK inside brackets gets a weight of its own and so is a word, not a break.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

constexpr size_t kMaxPromptChars = 32000;  // code points
constexpr double kMaxPromptWeight = 1e4;   // magnitude, after all nesting

struct PromptPiece {
  std::string text;
  double weight = 1.0;
  // A BREAK keyword: the text "BREAK" with the weight -1 that no other syntax gives by accident.
  bool is_break() const { return weight == -1.0 && text == "BREAK"; }
  friend bool operator==(const PromptPiece&, const PromptPiece&) = default;
};

// At least one piece; neighbours of equal weight are merged. Invalid UTF-8 is replaced by U+FFFD.
// Throws UsageError for more than kMaxPromptChars characters, for a number that cannot be read ("1.2.3") and
// for a weight that is not within +-kMaxPromptWeight; the latter two name the text. No recursion.
std::vector<PromptPiece> parse_prompt_attention(std::string_view prompt);

// One <lora:name:unet> or <lora:name:te:unet> tag, as A1111 reads it: <lora:name> weighs both by 1, one
// number both. <lora:name:1:lbw=1,0,...> and <lora:name:1:1,0,...> have block weights, too.
struct LoraTag {
  std::string name;
  double weight = 1.0;      // of the UNet
  double te_weight = 1.0;   // of the text encoders
  std::string blocks = {};  // block weights as they stand after "lbw="; empty: none
  friend bool operator==(const LoraTag&, const LoraTag&) = default;
};

struct PromptTags {
  std::string text;            // the prompt without its <word:...> tags
  std::vector<LoraTag> loras;  // in order; a name may come twice, and then both apply
  std::vector<std::string>
      unknown;  // other tags ("hypernet:x:1"), taken out too; the caller says so to the user
};

// Takes <lora:...>, <lyco:...> and other <word:...> tags out of the prompt.
// Throws UsageError for names that are empty, hold a path separator, a control character or a leading dot,
// and for weights that are no finite numbers within +-kMaxPromptWeight.
PromptTags extract_lora_tags(std::string_view prompt);

}  // namespace rocm_sd
