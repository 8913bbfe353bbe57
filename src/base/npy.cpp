// Source of the format: NumPy's documentation of numpy.lib.format.
#include "base/npy.hpp"

#include <cassert>
#include <charconv>
#include <cstring>

#include "base/checked.hpp"
#include "base/file.hpp"

namespace rocm_sd {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kFileLimit = uint64_t{16} << 30;
constexpr size_t kHeaderLimit = 1 << 16;
constexpr size_t kMaxRank = 32;  // NumPy's

// A cursor over the header: a Python dict of three known keys.
class Header {
 public:
  Header(std::string_view text, const std::string& what) : rest_(text), what_(what) {}

  bool take(char c) {
    skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    require<FormatError>(take(c), what_, ": expected '", c, "' in the .npy header, got \"",
                         printable(rest_.substr(0, 20)), '"');
  }
  std::string_view quoted() {
    skip();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    require<FormatError>(quote == '\'' || quote == '"', what_, ": expected a text in the .npy header, got \"",
                         printable(rest_.substr(0, 20)), '"');
    const size_t end = rest_.find(quote, 1);
    require<FormatError>(end != std::string_view::npos, what_, ": a text of the .npy header does not end");
    const std::string_view out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return out;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}})
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return value;
      }
    throw FormatError(concat(what_, ": expected True or False in the .npy header, got \"",
                             printable(rest_.substr(0, 20)), '"'));
  }
  uint64_t number() {
    skip();
    uint64_t out = 0;
    const auto result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    require<FormatError>(result.ec == std::errc{}, what_, ": expected a size in the .npy header, got \"",
                         printable(rest_.substr(0, 20)), '"');
    rest_.remove_prefix(static_cast<size_t>(result.ptr - rest_.data()));
    return out;
  }
  void end() {
    skip();
    require<FormatError>(rest_.empty(), what_, ": more after the .npy header: \"",
                         printable(rest_.substr(0, 20)), '"');
  }

 private:
  void skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }
  std::string_view rest_;
  const std::string& what_;
};

NpyType element_type(std::string_view descr, const std::string& what) {
  require<FormatError>(descr.size() >= 3 && descr.size() <= 4, what, ": element type \"", printable(descr),
                       "\" is not one plain number");
  require<FormatError>(descr[0] != '>', what, ": big-endian elements (", printable(descr), ")");
  NpyType out{descr[1], 0};
  const auto result = std::from_chars(descr.data() + 2, descr.data() + descr.size(), out.bytes);
  const uint32_t n = out.bytes;
  const bool power = n == 1 || n == 2 || n == 4 || n == 8;
  const bool known = (out.kind == 'f' && power && n >= 2) ||
                     ((out.kind == 'i' || out.kind == 'u') && power) || (out.kind == 'b' && n == 1) ||
                     (out.kind == 'c' && (n == 8 || n == 16)) || (out.kind == 'V' && (n == 1 || n == 2));
  require<FormatError>((descr[0] == '<' || descr[0] == '|') && result.ec == std::errc{} &&
                           result.ptr == descr.data() + descr.size() && known,
                       what, ": element type \"", printable(descr),
                       "\" is not a float, an integer, a bool or a complex number");
  return out;
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> file, const std::string& what) {
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(file[at]); };
  require<FormatError>(file.size() >= 10 && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0, what,
                       ": not a .npy file");
  const uint32_t version = byte(6);
  require<FormatError>(version >= 1 && version <= 3, what, ": .npy version ", version, ", expected 1 to 3");
  const size_t begin = version == 1 ? 10 : 12;
  require<FormatError>(file.size() >= begin, what, ": the .npy header is cut short");
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= static_cast<size_t>(byte(10)) << 16 | static_cast<size_t>(byte(11)) << 24;
  require<FormatError>(length <= kHeaderLimit && length <= file.size() - begin, what, ": a .npy header of ",
                       length, " bytes in a file of ", file.size());
  Header in({reinterpret_cast<const char*>(file.data()) + begin, length}, what);
  NpyArray out;
  bool has_type = false, has_order = false, has_shape = false;
  in.expect('{');
  while (!in.take('}')) {
    const std::string_view key = in.quoted();
    in.expect(':');
    if (key == "descr" && !has_type) {
      out.type = element_type(in.quoted(), what);
      has_type = true;
    } else if (key == "fortran_order" && !has_order) {
      require<FormatError>(!in.boolean(), what, ": stored in Fortran order (use numpy.ascontiguousarray)");
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      in.expect('(');
      while (!in.take(')')) {
        out.shape.push_back(in.number());
        require<FormatError>(out.shape.size() <= kMaxRank, what, ": more than ", kMaxRank, " axes");
        if (in.take(')')) break;
        in.expect(',');
      }
      has_shape = true;
    } else {
      throw FormatError(concat(what, ": unexpected key \"", printable(key), "\" in the .npy header"));
    }
    if (in.take('}')) break;
    in.expect(',');
  }
  in.end();
  require<FormatError>(has_type && has_order && has_shape, what,
                       ": the .npy header lacks descr, fortran_order or shape");
  uint64_t size = out.type.bytes;
  for (const uint64_t n : out.shape) size = checked_mul(size, n, what);
  const auto data = file.subspan(begin + length);
  require<FormatError>(size == data.size(), what, ": the shape asks for ", size, " bytes, the file has ",
                       data.size());
  out.data.assign(data.begin(), data.end());
  return out;
}

std::vector<std::byte> format_npy(const NpyType& type, std::span<const uint64_t> shape,
                                  std::span<const std::byte> data) {
  std::string header = concat("{'descr': '", type.bytes == 1 || type.kind == 'V' ? '|' : '<', type.kind,
                              type.bytes, "', 'fortran_order': False, 'shape': (");
  [[maybe_unused]] uint64_t size = type.bytes;
  for (size_t i = 0; i < shape.size(); ++i) {
    header += concat(shape[i], i + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
    size *= shape[i];
  }
  assert(size == data.size());
  header += "), }";
  // The data begins at a multiple of 64.
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string out(kMagic);
  out += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  out += header;
  const auto head = std::as_bytes(std::span(out));
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

NpyArray read_npy(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, kFileLimit);
  return parse_npy(std::as_bytes(std::span(bytes)), printable_path(path));
}

void write_npy(const std::filesystem::path& path, const NpyType& type, std::span<const uint64_t> shape,
               std::span<const std::byte> data) {
  const std::vector<std::byte> bytes = format_npy(type, shape, data);
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace rocm_sd
