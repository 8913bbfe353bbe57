// What tells whether two ranks were asked for the same image.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// FNV-1a (Fowler, Noll, Vo) of 64 bits: nobody is to be kept from making two texts alike, only from mixing
// them up.
class TextHash {
 public:
  void add(std::string_view text) {
    for (const char c : text) mix(static_cast<unsigned char>(c));
    mix(0xff);
  }
  uint64_t value() const { return hash_; }
  std::string digits() const;  // 16, hexadecimal

 private:
  void mix(unsigned char c) { hash_ = (hash_ ^ c) * 0x100000001b3u; }
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// Over what decides how the ranks' steps go together: texts, sizes, numbers, and how many models and images
// there are; not over the seed, and not over pixels.
uint64_t request_key(const GenerateRequest& request);

}  // namespace rocm_sd
