// The pixels of a PNG file as zlib's stream of filtered rows (PNG specification, 9 and 10), made by several
// threads: libpng compresses on one, which takes as long as half of a small picture's steps on a GPU.
#include <omp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.hpp"
#include "pipeline/images/codecs.hpp"

namespace rocm_sd::images {
namespace {

// Rows of about so many bytes are compressed at a time: the stream is the same for any number of threads.
// Each begins with what lies before it as its dictionary, so that this costs some bytes of a stripe and no
// matches.
constexpr int64_t kStripeBytes = 64 << 10;
constexpr size_t kWindow = 32 << 10;  // how far back deflate looks
constexpr int kPixel = 3, kLevel = 6, kMemory = 8;

uint8_t paeth(int left, int above, int corner) {  // 9.4
  const int p = left + above - corner;
  const int from_left = std::abs(p - left), from_above = std::abs(p - above),
            from_corner = std::abs(p - corner);
  if (from_left <= from_above && from_left <= from_corner) return static_cast<uint8_t>(left);
  return static_cast<uint8_t>(from_above <= from_corner ? above : corner);
}

template <int kFilter>
void filter_row(const uint8_t* row, const uint8_t* above, int64_t bytes, uint8_t* out) {
  for (int64_t i = 0; i < bytes; ++i) {
    const int a = i < kPixel ? 0 : row[i - kPixel], b = above[i], c = i < kPixel ? 0 : above[i - kPixel];
    int guess = 0;
    if constexpr (kFilter == 1) guess = a;
    if constexpr (kFilter == 2) guess = b;
    if constexpr (kFilter == 3) guess = (a + b) / 2;
    if constexpr (kFilter == 4) guess = paeth(a, b, c);
    out[i] = static_cast<uint8_t>(row[i] - guess);
  }
}
constexpr auto kFilterRow =
    std::array{filter_row<0>, filter_row<1>, filter_row<2>, filter_row<3>, filter_row<4>};

// 12.8: the filter whose bytes, taken as signed, have the least sum of magnitudes. out[0] is the filter's
// number.
void filter_best(const uint8_t* row, const uint8_t* above, int64_t bytes, uint8_t* out,
                 std::vector<uint8_t>& tried) {
  tried.resize(static_cast<size_t>(bytes));
  int64_t least = -1;
  for (size_t filter = 0; filter < kFilterRow.size(); ++filter) {
    kFilterRow[filter](row, above, bytes, tried.data());
    int64_t sum = 0;
    for (const uint8_t v : tried) sum += v < 128 ? v : 256 - v;
    if (least >= 0 && sum >= least) continue;
    least = sum;
    out[0] = static_cast<uint8_t>(filter);
    std::copy(tried.begin(), tried.end(), out + 1);
  }
}

// Raw deflate of data[begin, begin + bytes), whose last stripe ends the stream. Empty: zlib had no memory.
std::vector<uint8_t> deflate_stripe(Bytes data, size_t begin, size_t bytes) {
  z_stream z{};
  constexpr int kRaw = -15;
  if (deflateInit2(&z, kLevel, Z_DEFLATED, kRaw, kMemory, Z_FILTERED) != Z_OK) return {};
  const size_t before = std::min(begin, kWindow);
  if (before > 0) deflateSetDictionary(&z, data.data() + begin - before, static_cast<uInt>(before));
  constexpr size_t kFlush = 16;  // the empty block behind which the next stripe begins
  std::vector<uint8_t> out(deflateBound(&z, bytes) + kFlush);
  z.next_in = const_cast<uint8_t*>(data.data() + begin);
  z.avail_in = static_cast<uInt>(bytes);
  z.next_out = out.data();
  z.avail_out = static_cast<uInt>(out.size());
  const bool last = begin + bytes == data.size();
  const int status = deflate(&z, last ? Z_FINISH : Z_SYNC_FLUSH);
  const bool whole = status == (last ? Z_STREAM_END : Z_OK) && z.avail_in == 0 && z.avail_out > 0;
  out.resize(whole ? out.size() - z.avail_out : 0);
  deflateEnd(&z);
  return out;
}

}  // namespace

std::vector<std::vector<uint8_t>> png_pixels(const Image& image) {
  const int64_t height = image.height, row = int64_t{kPixel} * image.width, line = row + 1;
  const int64_t lines = std::max<int64_t>(1, kStripeBytes / line), stripes = (height + lines - 1) / lines;
  const int threads = static_cast<int>(std::min<int64_t>(stripes, omp_get_max_threads()));
  std::vector<uint8_t> filtered(static_cast<size_t>(height * line));
  const std::vector<uint8_t> nothing(static_cast<size_t>(row));  // above the first row
  std::vector<std::vector<uint8_t>> out(static_cast<size_t>(stripes));
  std::vector<uLong> sums(out.size());
#pragma omp parallel if (stripes > 1) num_threads(threads)
  {
    std::vector<uint8_t> tried;
#pragma omp for schedule(dynamic)
    for (int64_t s = 0; s < stripes; ++s)
      for (int64_t y = s * lines; y < std::min(height, (s + 1) * lines); ++y) {
        const uint8_t* at = image.rgb.data() + y * row;
        filter_best(at, y > 0 ? at - row : nothing.data(), row, filtered.data() + y * line, tried);
      }
#pragma omp for schedule(dynamic)
    for (int64_t s = 0; s < stripes; ++s) {
      const auto begin = static_cast<size_t>(s * lines * line),
                 bytes = std::min(static_cast<size_t>(lines * line), filtered.size() - begin);
      const auto i = static_cast<size_t>(s);
      out[i] = deflate_stripe(filtered, begin, bytes);
      sums[i] = adler32(1, filtered.data() + begin, static_cast<uInt>(bytes));
    }
  }
  uLong sum = 1;
  for (size_t i = 0; i < out.size(); ++i) {
    require<InternalError>(!out[i].empty(), "PNG encoding failed: zlib refused");
    const auto begin = static_cast<int64_t>(i) * lines * line;
    const int64_t bytes = std::min(lines * line, height * line - begin);
    sum = adler32_combine(sum, sums[i], static_cast<z_off_t>(bytes));
  }
  constexpr uint8_t kHead[] = {0x78, 0x9c};  // RFC 1950: a window of 32 KiB, the default level
  out.front().insert(out.front().begin(), std::begin(kHead), std::end(kHead));
  for (const int shift : {24, 16, 8, 0}) out.back().push_back(static_cast<uint8_t>(sum >> shift));
  return out;
}

}  // namespace rocm_sd::images
