// Fuzzes the `parameters` text of AUTOMATIC1111: any text is read, and what was read reads the same after it
// was written, where it holds the three fields that the format asks for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "pipeline/infotext.hpp"

namespace {

void check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rocm_sd;
  const Infotext once = parse_infotext({reinterpret_cast<const char*>(data), size});
  check(once.prompt.size() + once.negative_prompt.size() <= size);
  const Infotext twice = parse_infotext(format_infotext(once));
  if (once.fields.size() < 3) return 0;
  const Infotext thrice = parse_infotext(format_infotext(twice));
  check(twice.prompt == thrice.prompt && twice.negative_prompt == thrice.negative_prompt &&
        twice.fields == thrice.fields);
  return 0;
}
