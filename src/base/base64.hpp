// Base64 (RFC 4648, section 4), as APIs and terminals take pictures.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rocm_sd {

std::string encode_base64(std::string_view bytes);
void append_base64(std::string& out, std::string_view bytes);

// Nothing where the text is not base64: a foreign character, bits behind the end, padding inside. Padding may
// be missing; line breaks between characters are taken.
std::optional<std::string> decode_base64(std::string_view text);

// The same of a text that may be a data URL: "data:image/png;base64,....".
std::optional<std::string> decode_data_url(std::string_view text);

}  // namespace rocm_sd
