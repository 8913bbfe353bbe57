// What the fuzz targets of prompts and tokenizers share.
#pragma once

#include <cstdlib>

#include "text/clip_tokenizer.hpp"

namespace rocm_sd {

// Loaded before the first input, whose time limit it would count against.
inline const ClipTokenizer& shipped_tokenizer() {
  static const ClipTokenizer tokenizer = ClipTokenizer::shipped();
  return tokenizer;
}

inline void check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace rocm_sd

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  rocm_sd::shipped_tokenizer();
  return 0;
}
