// Errors that a user can meet: each says what was expected, what came and the name of the thing, and knows
// its exit code.
#pragma once

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace rocm_sd {

// Exit codes of every program of this project (docs/architecture.md, "Errors").
enum class ExitCode : int {
  kOk = 0,
  kGenerationFailed = 1,
  kUsage = 2,
  kFile = 3,
  kNoDevice = 4,
  kOutOfMemory = 5,
  kCancelled = 6,
  kInternal = 70,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// One subclass per exit code, plus ShapeError for operands that do not fit together (a file's or a caller's
// fault).
#define ROCM_SD_DEFINE_ERROR_(Name, code)                                         \
  class Name : public Error {                                                     \
   public:                                                                        \
    explicit Name(const std::string& message) : Error(ExitCode::code, message) {} \
  };
ROCM_SD_DEFINE_ERROR_(GenerationError, kGenerationFailed)
ROCM_SD_DEFINE_ERROR_(UsageError, kUsage)
ROCM_SD_DEFINE_ERROR_(FileError, kFile)
ROCM_SD_DEFINE_ERROR_(FormatError, kFile)
ROCM_SD_DEFINE_ERROR_(ShapeError, kFile)
ROCM_SD_DEFINE_ERROR_(DeviceError, kNoDevice)
ROCM_SD_DEFINE_ERROR_(OutOfMemoryError, kOutOfMemory)
ROCM_SD_DEFINE_ERROR_(CancelledError, kCancelled)
ROCM_SD_DEFINE_ERROR_(InternalError, kInternal)
#undef ROCM_SD_DEFINE_ERROR_

// Concatenates the parts as fmt would print each of them.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (fmt::format_to(std::back_inserter(out), "{}", parts), ...);
  return out;
}

// Throws E(concat(parts...)) unless ok. The parts are only formatted on failure.
template <class E = ShapeError, class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(concat(parts...));
}

// A text from a file or a user made safe to print on one line: control bytes and invalid UTF-8 as \xNN, cut
// at max_bytes.
std::string printable(std::string_view text, size_t max_bytes = 200);

}  // namespace rocm_sd
