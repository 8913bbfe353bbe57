// Bodies of multipart/form-data (RFC 7578): the fields of a form, with pictures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd::server {

struct FormField {
  std::string name;
  bool is_file = false;   // had a file name
  std::string file_name;  // as the client says it: never a path of this machine
  std::string value;
};

// The boundary of a Content-Type header. Throws UsageError where it is missing or not 1..70 of RFC 2046's
// characters.
std::string multipart_boundary(std::string_view content_type);

// At most 64 fields with heads of at most 4 KiB. Throws UsageError where the body is not of that form.
std::vector<FormField> parse_multipart(std::string_view body, std::string_view boundary);

}  // namespace rocm_sd::server
