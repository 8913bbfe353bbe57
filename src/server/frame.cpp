#include "server/frame.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace rocm_sd::server {
namespace {

constexpr size_t kHead = 8;

uint32_t read_u32(std::string_view text, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
  return value;
}

void append_u32(std::string& out, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 255);
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

bool write_frame(int socket, std::string_view json, std::string_view bytes) {
  if (json.size() > kMaxFrameJson || bytes.size() > kMaxFrameBytes) return false;
  std::string head;
  append_u32(head, static_cast<uint32_t>(json.size()));
  append_u32(head, static_cast<uint32_t>(bytes.size()));
  head += json;
  return send_all(socket, head) && send_all(socket, bytes);
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (rest.size() < kHead) return std::nullopt;
  const uint32_t json = read_u32(rest, 0), bytes = read_u32(rest, 4);
  require<FormatError>(json <= kMaxFrameJson && bytes <= kMaxFrameBytes, "frame: ", json,
                       " bytes of JSON and ", bytes, " others, at most ", kMaxFrameJson, " and ",
                       kMaxFrameBytes);
  const size_t whole = kHead + size_t{json} + bytes;
  if (rest.size() < whole) return std::nullopt;
  Frame frame{std::string(rest.substr(kHead, json)), std::string(rest.substr(kHead + json, bytes))};
  used_ += whole;
  if (used_ == buffer_.size()) {
    std::string().swap(buffer_);  // a picture's memory is given back
    used_ = 0;
  }
  return frame;
}

}  // namespace rocm_sd::server
