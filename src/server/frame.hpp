// Frames between the supervisor and a worker, over a stream socket: the lengths of a JSON object and of bytes
// that go with it (two little-endian 32-bit numbers), then both.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
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
  // Where the next of the stream may be received to; a long frame's bytes come to their own place. took(): so
  // many of them came. append() copies them from elsewhere.
  std::span<char> room();
  void took(size_t count);
  void append(std::string_view piece);
  // The next whole frame, or nothing yet. Throws FormatError for lengths beyond the limits.
  std::optional<Frame> next();

 private:
  void begin_frame();
  void grow(size_t least);
  void finish_if_whole();

  std::string buffer_, head_;
  Frame frame_;        // that arrives; its bytes are made longer than what has come
  size_t filled_ = 0;  // of its bytes
  uint32_t json_ = 0, bytes_ = 0;
  bool is_direct_ = false, is_refused_ = false;
  std::deque<Frame> whole_;
};

}  // namespace rocm_sd::server
