// From a key in an adapter's file to the module that it belongs to and the part that it plays there.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace rocm_sd {

struct AdapterKey {
  std::string_view stem;  // the module's name in the file
  std::string role;  // "down", "up", "mid", "alpha", "magnitude", "hada_w1_a", ..., "diff"; empty: unknown
};
AdapterKey parse_adapter_key(std::string_view key);

// "a.b_c" -> "a_b_c": kohya's module names.
std::string with_underscores(std::string_view name);
// Diffusers' old attention processors: "x.attn1.to_out.0" -> "x.attn1.processor.to_out".
std::string processor_stem(std::string_view name);

}  // namespace rocm_sd
