// load_image and save_image: the container is told by its first bytes, never by the file's name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd {
namespace images {

void require_size(int64_t width, int64_t height, const std::string& name) {
  require<FormatError>(
      width > 0 && height > 0 && width <= kMaxPixels && height <= kMaxPixels && width * height <= kMaxPixels,
      name, ": ", width, " x ", height, " pixels, at most ", kMaxPixels, " are accepted");
}

namespace {

// A file descriptor that is closed with its scope.
class File {
 public:
  File(const std::string& path, int flags, int mode = 0)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  bool close() {
    const bool ok = fd_ < 0 || ::close(fd_) == 0;
    fd_ = -1;
    return ok;
  }

 private:
  int fd_;
};

std::vector<uint8_t> read_file(const std::string& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  require<FileError>(file.fd() >= 0, printable(path), ": cannot open (", std::strerror(errno), ")");
  struct stat info;
  require<FileError>(fstat(file.fd(), &info) == 0 && S_ISREG(info.st_mode), printable(path),
                     ": expected a regular file");
  require<FormatError>(static_cast<uint64_t>(info.st_size) <= kMaxFileBytes, printable(path), ": ",
                       info.st_size, " bytes, at most ", kMaxFileBytes, " are accepted for a picture");
  std::vector<uint8_t> bytes(static_cast<size_t>(info.st_size));
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = ::read(file.fd(), bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    require<FileError>(n > 0, printable(path), ": cannot read (",
                       n == 0 ? "the file shrank" : std::strerror(errno), ")");
    have += static_cast<size_t>(n);
  }
  return bytes;
}

ImageFormat sniff(Bytes bytes, const std::string& name) {
  const auto begins = [&](size_t at, std::string_view magic) {
    return bytes.size() >= at + magic.size() &&
           std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
  };
  require<FormatError>(!bytes.empty(), name, ": empty file, expected a PNG, JPEG or WebP picture");
  if (begins(0, "\x89PNG")) return ImageFormat::kPng;
  if (begins(0, "\xff\xd8\xff")) return ImageFormat::kJpeg;
  if (begins(0, "RIFF") && begins(8, "WEBP")) return ImageFormat::kWebp;
  const std::string start(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 16));
  throw FormatError(concat(name, ": expected a PNG, JPEG or WebP picture, the file begins with \"",
                           printable(start), "\""));
}

}  // namespace
}  // namespace images

ImageFormat image_format_of(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  for (char& c : ending) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (ending == ".png") return ImageFormat::kPng;
  if (ending == ".jpg" || ending == ".jpeg") return ImageFormat::kJpeg;
  if (ending == ".webp") return ImageFormat::kWebp;
  throw UsageError(concat(printable(path), ": unknown picture format \"", printable(ending),
                          "\"; expected .png, .jpg, .jpeg or .webp"));
}

Image decode_image(const std::vector<uint8_t>& bytes, const std::string& name) {
  switch (images::sniff(bytes, name)) {
    case ImageFormat::kPng: return images::decode_png(bytes, name);
    case ImageFormat::kJpeg: return images::decode_jpeg(bytes, name);
    case ImageFormat::kWebp: return images::decode_webp(bytes, name);
  }
  return {};
}

Image load_image(const std::string& path) { return decode_image(images::read_file(path), printable(path)); }

namespace images {
namespace {

FileTexts texts_of(const std::vector<uint8_t>& bytes, const std::string& name) {
  switch (sniff(bytes, name)) {
    case ImageFormat::kPng: return png_texts(bytes, name);
    case ImageFormat::kJpeg: return jpeg_texts(bytes);
    case ImageFormat::kWebp: return webp_texts(bytes);
  }
  return {};
}

}  // namespace
}  // namespace images

std::string read_parameters(const std::vector<uint8_t>& bytes, const std::string& name) {
  return images::texts_of(bytes, name).parameters;
}
std::string read_receipt(const std::vector<uint8_t>& bytes, const std::string& name) {
  return images::texts_of(bytes, name).receipt;
}
std::string read_receipt(const std::string& path) {
  return read_receipt(images::read_file(path), printable(path));
}

std::string read_parameters(const std::string& path) {
  return read_parameters(images::read_file(path), printable(path));
}

std::vector<uint8_t> encode_image(const Image& image, ImageFormat format, const ImageWriteOptions& options) {
  const bool whole =
      image.width > 0 && image.height > 0 &&
      image.rgb.size() == static_cast<size_t>(image.width) * static_cast<size_t>(image.height) * 3;
  require<UsageError>(whole, "cannot encode ", image.width, " x ", image.height, " pixels from ",
                      image.rgb.size(), " bytes");
  require<UsageError>(options.quality >= 1 && options.quality <= 100, "quality ", options.quality,
                      ": expected 1 to 100");
  const images::FileTexts texts{options.parameters, options.receipt};
  switch (format) {
    case ImageFormat::kPng: return images::encode_png(image, texts);
    case ImageFormat::kJpeg: return images::encode_jpeg(image, options.quality, texts);
    case ImageFormat::kWebp: return images::encode_webp(image, options.quality, texts);
  }
  return {};
}

void save_image(const Image& image, const std::string& path, const ImageWriteOptions& options) {
  const std::vector<uint8_t> bytes = encode_image(image, image_format_of(path), options);
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace rocm_sd
