// Which jobs may be drawn together, as images of one batch of the UNet.
#pragma once

#include <optional>
#include <string>

#include "server/job.hpp"

namespace rocm_sd::server {

// What jobs must have in common: everything but prompt, negative prompt and seed. Empty: the job is drawn
// alone (several images, pictures of its own, a second pass, variations, LoRAs or AND in its prompt).
std::string joining_key(const JobRequest& request);

// What they differ in.
struct JoinedTexts {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  std::optional<int64_t> seed;  // absent or below 0: any
};
JoinedTexts joined_texts(const JobRequest& request);

}  // namespace rocm_sd::server
