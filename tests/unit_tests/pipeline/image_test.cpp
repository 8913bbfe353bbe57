// Pictures: round trips, metadata, orientation, and hostile files.
#include "rocm_sd/image.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <png.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <zlib.h>

#include "base/error.hpp"
#include "pipeline/images/codecs.hpp"
#include "pipeline/pixels.hpp"

namespace rocm_sd {
namespace {

// A smooth picture with odd sides, which JPEG keeps well.
Image gradient(int width, int height) {
  Image image{width, height, {}, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int v : {255 * x / width, 255 * y / height, 128})
        image.rgb.push_back(static_cast<uint8_t>(v));
  return image;
}

double psnr(const Image& a, const Image& b) {
  double square = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) square += std::pow(a.rgb[i] - b.rgb[i], 2);
  return square == 0 ? 1e9 : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / square);
}

const std::string kParameters = "a cat, \xf0\x9f\x90\xb1 Größe\nNegative prompt: dog\nSteps: 20, Seed: 1";

TEST(Image, EveryFormatRoundTripsPixelsAndParameters) {
  const Image image = gradient(37, 23);
  for (const auto& [format, least] :
       {std::pair(ImageFormat::kPng, 1e9), {ImageFormat::kJpeg, 38.0}, {ImageFormat::kWebp, 38.0}}) {
    for (const std::string& parameters :
         {kParameters, std::string("plain ASCII"), std::string("Latin-1: Größe")}) {
      const auto bytes = encode_image(image, format, {.quality = 95, .parameters = parameters});
      const Image back = decode_image(bytes, "picture");
      ASSERT_EQ(back.width, 37);
      ASSERT_EQ(back.height, 23);
      EXPECT_GE(psnr(image, back), least);
      EXPECT_EQ(read_parameters(bytes, "picture"), parameters);
    }
  }
  EXPECT_EQ(decode_image(encode_image(image, ImageFormat::kWebp, {.quality = 100}), "webp").rgb, image.rgb);
}

Image noise(int width, int height, uint32_t levels) {
  Image image{width, height, {}, {}};
  image.rgb.resize(3 * static_cast<size_t>(width) * static_cast<size_t>(height));
  std::mt19937 random(7);
  for (uint8_t& value : image.rgb) value = static_cast<uint8_t>(random() % levels);
  return image;
}

size_t libpng_size(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  EXPECT_NE(png_image_write_to_memory(&png, nullptr, &size, 0, image.rgb.data(), 0, nullptr), 0);
  return size;
}

// Pixels are compressed in stripes of 64 KiB: one row, exactly one stripe, a few with a short last one, a row
// that is longer than a stripe. libpng reads them, and makes files of about the same size.
TEST(Image, PngOfManyStripesIsExactAndAsSmallAsLibpngs) {
  for (const auto& [width, height] :
       {std::pair(1, 1), {1, 400}, {30000, 3}, {21845, 1}, {341, 64}, {512, 512}, {517, 389}})
    for (const Image& image : {noise(width, height, 256), noise(width, height, 3), gradient(width, height)}) {
      const auto bytes = encode_image(image, ImageFormat::kPng, {.parameters = kParameters});
      const Image back = decode_image(bytes, "picture");
      ASSERT_EQ(std::pair(back.width, back.height), std::pair(width, height));
      EXPECT_TRUE(back.rgb == image.rgb) << width << " x " << height;
      // Each stripe has a chunk's frame, an empty block and a code table of its own.
      constexpr double kMore = 1.03, kTexts = 300, kStripe = 120;
      const double stripes = 1 + static_cast<double>(image.rgb.size()) / 65536;
      EXPECT_LT(static_cast<double>(bytes.size()),
                kMore * static_cast<double>(libpng_size(image)) + kTexts + kStripe * stripes)
          << width << " x " << height;
    }
}

TEST(Image, PngIsTheSameForAnyNumberOfThreads) {
  const Image image = noise(300, 700, 9);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto one = encode_image(image, ImageFormat::kPng, {});
  omp_set_num_threads(5);
  const auto five = encode_image(image, ImageFormat::kPng, {});
  omp_set_num_threads(threads);
  EXPECT_EQ(one, five);
}

TEST(Image, TruncationAtEveryByteIsAnErrorOrAWholePicture) {
  const Image image = gradient(16, 16);
  for (const ImageFormat format : {ImageFormat::kPng, ImageFormat::kJpeg, ImageFormat::kWebp}) {
    const auto whole = encode_image(image, format, {.parameters = kParameters});
    for (size_t n = 0; n + 1 < whole.size(); ++n) {
      const std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
      try {
        EXPECT_EQ(decode_image(part, "part").rgb, decode_image(whole, "whole").rgb) << n;
      } catch (const FormatError&) {
      }
      try {
        read_parameters(part, "part");
      } catch (const FormatError&) {
      }
    }
  }
}

// A larger JPEG, cut anywhere in its pixels, baseline as our own writer makes it: half a picture is none.
TEST(Image, CutJpegsAreRefused) {
  const auto whole = encode_image(gradient(96, 80), ImageFormat::kJpeg, {.quality = 80});
  for (size_t n = 2; n + 16 < whole.size(); n += 3)
    EXPECT_THROW(decode_image({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)}, "cut"), FormatError)
        << n;
  // An end marker behind the cut does not make it whole; bytes behind the end do no harm.
  for (const double part : {0.5, 0.9}) {
    std::vector<uint8_t> cut(
        whole.begin(), whole.begin() + static_cast<ptrdiff_t>(part * static_cast<double>(whole.size())));
    cut.insert(cut.end(), {0xff, 0xd9});
    EXPECT_THROW(decode_image(cut, "cut"), FormatError) << part;
  }
  std::vector<uint8_t> more = whole;
  more.insert(more.end(), 100, 0x20);
  EXPECT_EQ(decode_image(more, "more").rgb, decode_image(whole, "whole").rgb);
}

// PNG files by hand: chunks around raw samples, as the specification has them.
std::vector<uint8_t> png_chunk(const std::string& type, std::vector<uint8_t> data) {
  std::vector<uint8_t> out;
  const auto append = [&out](uint32_t v) {
    for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(v >> shift));
  };
  append(static_cast<uint32_t>(data.size()));
  data.insert(data.begin(), type.begin(), type.end());
  out.insert(out.end(), data.begin(), data.end());
  append(static_cast<uint32_t>(crc32(0, data.data(), static_cast<uInt>(data.size()))));
  return out;
}
std::vector<uint8_t> png_file(uint8_t width, uint8_t height, uint8_t bits, uint8_t type,
                              const std::vector<uint8_t>& rows, const std::vector<uint8_t>& extra = {}) {
  std::vector<uint8_t> out = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};
  const auto add = [&out](const std::vector<uint8_t>& bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  add(png_chunk("IHDR", {0, 0, 0, width, 0, 0, 0, height, bits, type, 0, 0, 0}));
  add(extra);
  uLongf size = compressBound(static_cast<uLong>(rows.size()));
  std::vector<uint8_t> packed(size);
  compress(packed.data(), &size, rows.data(), static_cast<uLong>(rows.size()));
  packed.resize(size);
  add(png_chunk("IDAT", packed));
  add(png_chunk("IEND", {}));
  return out;
}

TEST(Image, SixteenBitPngsGiveTheHighByteWhateverGammaTheyName) {
  // Colour types: grey, RGB, grey and alpha, RGBA.
  for (const auto& [type, samples] : {std::pair(0, 1), {2, 3}, {4, 2}, {6, 4}}) {
    std::vector<uint8_t> wide, narrow;
    for (int y = 0; y < 3; ++y) {
      wide.push_back(0);  // no filter
      narrow.push_back(0);
      for (int i = 0; i < 4 * samples; ++i) {
        const auto v = static_cast<uint8_t>(30 + 17 * i + 40 * y);
        wide.insert(wide.end(), {v, static_cast<uint8_t>(255 - v)});
        narrow.push_back(v);
      }
    }
    const auto gamma = png_chunk("gAMA", {0, 1, 0x86, 0xa0});  // 1.0
    const Image eight = decode_image(png_file(4, 3, 8, static_cast<uint8_t>(type), narrow), "eight");
    EXPECT_EQ(eight.rgb[0], 30);
    for (const auto& extra : {std::vector<uint8_t>(), gamma}) {
      const Image sixteen =
          decode_image(png_file(4, 3, 16, static_cast<uint8_t>(type), wide, extra), "sixteen");
      EXPECT_EQ(sixteen.rgb, eight.rgb) << type;
      EXPECT_EQ(sixteen.alpha, eight.alpha) << type;
      EXPECT_EQ(sixteen.alpha.empty(), type < 4);
    }
  }
}

TEST(Image, OrientationOfPngs) {
  const std::vector<uint8_t> rows = {0, 0, 1, 2, 0, 3, 4, 5};  // 3 x 2, grey
  const Image plain = decode_image(png_file(3, 2, 8, 0, rows), "plain");
  for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
    // A TIFF header and one entry: Orientation, SHORT.
    const auto exif = png_chunk("eXIf", {'M', 'M', 0, 42, 0, 0, 0,           8, 0, 1, 0x01, 0x12, 0,
                                         3,   0,   0, 0,  1, 0, orientation, 0, 0, 0, 0,    0,    0});
    const Image turned = decode_image(png_file(3, 2, 8, 0, rows, exif), "turned");
    EXPECT_EQ(turned.rgb, images::upright(plain, orientation).rgb) << int{orientation};
    EXPECT_EQ(turned.width, orientation < 5 ? 3 : 2);
  }
}

TEST(Image, TransparencyIsLaidOverWhite) {
  // 0, a half and all of a dark pixel: Pillow's paste gives these.
  const Image image{3, 1, {40, 80, 120, 40, 80, 120, 40, 80, 120}, {0, 128, 255}};
  const std::vector<float> pixels = image_to_floats(image, 3, 1);
  const int want[] = {255, 255, 255, 147, 167, 187, 40, 80, 120};
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(std::lround((pixels[i] + 1) * 127.5f), want[i]) << i;
}

TEST(Image, RandomDamageNeverCrashes) {
  std::mt19937 random(11);
  const Image image = gradient(16, 16);
  for (const ImageFormat format : {ImageFormat::kPng, ImageFormat::kJpeg, ImageFormat::kWebp}) {
    const auto whole = encode_image(image, format, {.parameters = kParameters});
    for (int round = 0; round < 300; ++round) {
      auto bytes = whole;
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      try {
        decode_image(bytes, "damaged");
        read_parameters(bytes, "damaged");
      } catch (const FormatError&) {
      }
    }
  }
}

TEST(Image, RefusesWhatIsNoPicture) {
  const auto message = [](const std::string& content) {
    try {
      decode_image({content.begin(), content.end()}, "x.png");
    } catch (const FormatError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message("").find("empty file"), std::string::npos);
  EXPECT_NE(message("hello\nworld").find("\"hello\\x0aworld\""), std::string::npos);
  // IHDR of 1 x 10^9 pixels.
  std::string bomb("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x3b\x9a\xca\0\0\0\0\1\x08\2\0\0\0", 29);
  EXPECT_NE(message(bomb + std::string(4, '\0')).find("x.png"), std::string::npos);
  EXPECT_THROW(images::require_size(65500, 65500, "x"), FormatError);
  EXPECT_THROW(images::require_size(0, 5, "x"), FormatError);
  EXPECT_NO_THROW(images::require_size(8192, 8192, "x"));
}

TEST(Image, FileErrorsNameTheFile) {
  EXPECT_THROW(load_image("/nonexistent/picture.png"), FileError);
  EXPECT_THROW(load_image(testing::TempDir()), FileError);
  const std::string fifo = testing::TempDir() + "rocm_sd_fifo.png";
  std::filesystem::remove(fifo);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW(load_image(fifo), FileError);
  std::filesystem::remove(fifo);
  EXPECT_THROW(save_image(gradient(8, 8), "/nonexistent/picture.png", {}), FileError);
  EXPECT_THROW(save_image(gradient(8, 8), "picture.gif", {}), UsageError);
  EXPECT_THROW(encode_image(gradient(8, 8), ImageFormat::kJpeg, {.quality = 0}), UsageError);
  EXPECT_THROW(encode_image(Image{8, 8, {}, {}}, ImageFormat::kPng, {}), UsageError);
  EXPECT_THROW(encode_image(gradient(8, 8), ImageFormat::kJpeg, {.parameters = std::string(40000, 'x')}),
               UsageError);
}

TEST(Image, SavesWholeFilesOnly) {
  const std::string path = testing::TempDir() + "rocm_sd_saved.png";
  save_image(gradient(9, 7), path, {.parameters = kParameters});
  EXPECT_EQ(load_image(path).rgb, gradient(9, 7).rgb);
  EXPECT_EQ(read_parameters(path), kParameters);
  for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir()))
    EXPECT_FALSE(entry.path().string().starts_with(path + ".") && entry.path().extension() == ".part");
  std::filesystem::remove(path);
}

TEST(Image, OrientationsTurnThePictureUpright) {
  // Pixels numbered 0..5 in a 3 x 2 picture; the first row of each upright result, from the EXIF
  // specification.
  Image image{3, 2, {}, {}};
  for (uint8_t i = 0; i < 6; ++i) image.rgb.insert(image.rgb.end(), 3, i);
  const std::vector<std::vector<int>> first_rows = {{0, 1, 2}, {2, 1, 0}, {5, 4, 3}, {3, 4, 5},
                                                    {0, 3},    {3, 0},    {5, 2},    {2, 5}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = images::upright(image, orientation);
    const auto& want = first_rows[static_cast<size_t>(orientation - 1)];
    ASSERT_EQ(turned.width, static_cast<int>(want.size()));
    for (size_t x = 0; x < want.size(); ++x) EXPECT_EQ(turned.rgb[3 * x], want[x]) << orientation;
  }
}

TEST(Exif, ReadsWhatItWritesAndSurvivesDamage) {
  const std::string receipt = "{\"prompt\": \"\u00fc \xe2\x82\xac\"}";
  for (const images::FileTexts& texts :
       {images::FileTexts{kParameters, ""}, {"", receipt}, {kParameters, receipt}}) {
    const images::FileTexts read = images::parse_exif(images::make_exif(texts)).texts;
    EXPECT_EQ(read.parameters, texts.parameters);
    EXPECT_EQ(read.receipt, texts.receipt);
  }
  const auto exif = images::make_exif({kParameters, receipt});
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = exif;
    bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    bytes.resize(random() % (bytes.size() + 1));
    images::parse_exif(bytes);
  }
}

}  // namespace
}  // namespace rocm_sd
