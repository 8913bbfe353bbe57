// Pictures: round trips, metadata, orientation, and hostile files.
#include "rocm_sd/image.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.hpp"
#include "pipeline/images/codecs.hpp"

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

TEST(Image, TruncationAtEveryByteIsAnErrorOrAWholePicture) {
  const Image image = gradient(16, 16);
  for (const ImageFormat format : {ImageFormat::kPng, ImageFormat::kJpeg, ImageFormat::kWebp}) {
    const auto whole = encode_image(image, format, {.parameters = kParameters});
    for (size_t n = 0; n + 1 < whole.size(); ++n) {
      const std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
      try {
        EXPECT_EQ(decode_image(part, "part").rgb.size(), image.rgb.size());
      } catch (const FormatError&) {
      }
      try {
        read_parameters(part, "part");
      } catch (const FormatError&) {
      }
    }
  }
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
  const auto exif = images::make_exif(kParameters);
  EXPECT_EQ(images::parse_exif(exif).user_comment, kParameters);
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
