// Frames between the supervisor and a worker, over a stream socket: the lengths of a JSON object and of bytes
// that go with it (two little-endian 32-bit numbers), then both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rocm_sd::server {

struct Frame {
  std::string json;
  std::string bytes;
};

constexpr uint32_t kMaxFrameJson = 16u << 20, kMaxFrameBytes = 512u << 20;

// Writes a whole frame. False: the other side has gone, or took nothing for the socket's send time-out.
bool write_frame(int socket, std::string_view json, std::string_view bytes = {});

// Puts frames together from what a socket gives piece by piece.
class FrameReader {
 public:
  void append(std::string_view piece) { buffer_.append(piece); }
  // The next whole frame, or nothing yet. Throws FormatError for lengths beyond the limits.
  std::optional<Frame> next();

 private:
  std::string buffer_;
  size_t used_ = 0;
};

}  // namespace rocm_sd::server
