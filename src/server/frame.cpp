#include "server/frame.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"

namespace rocm_sd::server {
namespace {

constexpr size_t kHead = 8;
constexpr size_t kPiece = 64 << 10;
constexpr size_t kPictureBytes = 1 << 20;

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

std::span<char> FrameReader::room() {
  is_direct_ = head_.size() == kHead && frame_.json.size() == json_ && bytes_ - filled_ >= kPiece;
  if (!is_direct_) {
    buffer_.resize(kPiece);
    return buffer_;
  }
  if (filled_ == frame_.bytes.size()) grow(filled_ + 1);
  return std::span(frame_.bytes).subspan(filled_);
}

void FrameReader::took(size_t count) {
  if (!is_direct_) return append(std::string_view(buffer_).substr(0, count));
  filled_ += count;
  finish_if_whole();
}

void FrameReader::append(std::string_view piece) {
  const auto take = [&](size_t wanted) {
    const std::string_view taken = piece.substr(0, wanted);
    piece.remove_prefix(taken.size());
    return taken;
  };
  while (!piece.empty() && !is_refused_) {
    if (head_.size() < kHead) {
      head_ += take(kHead - head_.size());
      if (head_.size() == kHead) begin_frame();
    } else if (frame_.json.size() < json_) {
      frame_.json += take(json_ - frame_.json.size());
    } else {
      const std::string_view taken = take(bytes_ - filled_);
      grow(filled_ + taken.size());
      taken.copy(frame_.bytes.data() + filled_, taken.size());
      filled_ += taken.size();
    }
    finish_if_whole();
  }
}

void FrameReader::begin_frame() {
  json_ = read_u32(head_, 0);
  bytes_ = read_u32(head_, 4);
  is_refused_ = json_ > kMaxFrameJson || bytes_ > kMaxFrameBytes;
}

// At once for a picture's size; beyond it not before bytes come, whatever the head promises.
void FrameReader::grow(size_t least) {
  if (frame_.bytes.size() >= least) return;
  frame_.bytes.resize(std::min<size_t>(bytes_, std::max({least, 2 * filled_, kPictureBytes})));
}

void FrameReader::finish_if_whole() {
  if (is_refused_ || head_.size() < kHead || frame_.json.size() < json_ || filled_ < bytes_) return;
  whole_.push_back(std::exchange(frame_, {}));
  head_.clear();
  filled_ = 0;
}

std::optional<Frame> FrameReader::next() {
  if (whole_.empty()) {
    require<FormatError>(!is_refused_, "frame: ", json_, " bytes of JSON and ", bytes_, " others, at most ",
                         kMaxFrameJson, " and ", kMaxFrameBytes);
    return std::nullopt;
  }
  Frame frame = std::move(whole_.front());
  whole_.pop_front();
  return frame;
}

}  // namespace rocm_sd::server
