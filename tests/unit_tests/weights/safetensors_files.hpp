// Files for the tests of src/weights: crafted safetensors bytes in a folder that goes away with the test.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "weights/safetensors.hpp"

namespace rocm_sd {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rocm_sd_weights_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// 8 bytes of length, the header, data_bytes zero bytes.
inline std::string file_bytes(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + std::string(header) + std::string(data_bytes, '\0');
}

// The message of the Error that `action` throws; fails the test where it throws none.
template <class E = Error, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << "an error is one line";
    for (const char c : text)
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20) << "control byte in: " << text;
    return text;
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

// Tensors with seeded random float values, written through write_safetensors.
struct NamedShape {
  std::string name;
  Shape shape;
};
inline std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = normal(random);
  return out;
}
inline TensorToWrite tensor_of(const std::string& name, const Shape& shape, DType dtype,
                               std::vector<float> values) {
  std::vector<char> stored(values.size() * dtype_size(dtype));
  convert_elements(values.data(), DType::kF32, stored.data(), dtype, static_cast<int64_t>(values.size()));
  return {name, dtype, shape, [stored](uint64_t offset, uint64_t bytes, void* dst) {
            std::memcpy(dst, stored.data() + offset, bytes);
          }};
}
inline void write_random(const std::filesystem::path& path, const std::vector<NamedShape>& tensors,
                         DType dtype = DType::kF32, const Metadata& metadata = {}) {
  std::vector<TensorToWrite> out;
  uint32_t seed = 1;
  for (const NamedShape& t : tensors)
    out.push_back(tensor_of(t.name, t.shape, dtype, random_values(t.shape.numel(), seed++)));
  write_safetensors(path, std::move(out), metadata);
}

}  // namespace rocm_sd
