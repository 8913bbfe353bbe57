// Errors that a user can meet: each says what was expected, what came and the name of the thing, and knows
// its exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace rocm_sd {

// Exit codes of every program of this project.
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

// An Error of one fixed exit code; Tag only makes the types differ, so that each can be caught by itself.
template <ExitCode kCode, class Tag>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using GenerationError = ErrorOf<ExitCode::kGenerationFailed, struct GenerationTag>;
using UsageError = ErrorOf<ExitCode::kUsage, struct UsageTag>;
using FileError = ErrorOf<ExitCode::kFile, struct FileTag>;      // cannot be opened, read or written
using FormatError = ErrorOf<ExitCode::kFile, struct FormatTag>;  // was read, but is not what it claims to be
using ShapeError = ErrorOf<ExitCode::kFile, struct ShapeTag>;    // operands that do not fit together
using DeviceError = ErrorOf<ExitCode::kNoDevice, struct DeviceTag>;
using OutOfMemoryError = ErrorOf<ExitCode::kOutOfMemory, struct OutOfMemoryTag>;
using CancelledError = ErrorOf<ExitCode::kCancelled, struct CancelledTag>;
using InternalError = ErrorOf<ExitCode::kInternal, struct InternalTag>;

}  // namespace rocm_sd
