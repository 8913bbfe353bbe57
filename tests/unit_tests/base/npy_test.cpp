// .npy files: what is written is read back, and what NumPy would not write is an error.
#include "base/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

std::vector<std::byte> file_of(std::string_view header, size_t data_bytes, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  out += header;
  out.resize(out.size() + data_bytes);
  const auto bytes = std::as_bytes(std::span(out));
  return {bytes.begin(), bytes.end()};
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  std::mt19937 engine(3);
  const std::vector<std::vector<uint64_t>> shapes = {{}, {0}, {1}, {7}, {3, 5}, {2, 0, 4}, {1, 2, 3, 4}};
  for (const NpyType type : {NpyType{'f', 4}, NpyType{'f', 2}, NpyType{'i', 8}, NpyType{'b', 1},
                             NpyType{'V', 2}, NpyType{'u', 1}, NpyType{'c', 16}})
    for (const auto& shape : shapes) {
      size_t bytes = type.bytes;
      for (const uint64_t n : shape) bytes *= n;
      std::vector<std::byte> data(bytes);
      for (auto& b : data) b = static_cast<std::byte>(engine());
      const auto file = format_npy(type, shape, data);
      EXPECT_EQ((file.size() - bytes) % 64, 0u);  // the data is aligned
      const NpyArray back = parse_npy(file, "file");
      EXPECT_EQ(back.type, type);
      EXPECT_EQ(back.shape, shape);
      EXPECT_EQ(back.data, data);
    }
}

TEST(Npy, HeadersThatNumpyWrites) {
  const NpyArray a =
      parse_npy(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 24), "a");
  EXPECT_EQ(a.shape, (std::vector<uint64_t>{2, 3}));
  const NpyArray b =
      parse_npy(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", 1, 2), "b");
  EXPECT_TRUE(b.shape.empty());
  const NpyArray c =
      parse_npy(file_of("{\"shape\":(4,),\"fortran_order\":False,\"descr\":\"<V2\"}", 8, 3), "c");
  EXPECT_EQ(c.type, (NpyType{'V', 2}));
}

TEST(Npy, BadFilesAreErrors) {
  const char* const bad[] = {
      "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
      "{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }",
      "{'descr': '<f3', 'fortran_order': False, 'shape': (2,), }",
      "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
      "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
      "{'descr': '<f4",
      "",
  };
  for (const char* header : bad) EXPECT_THROW(parse_npy(file_of(header, 8), "bad"), FormatError) << header;
  const auto good = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8);
  EXPECT_NO_THROW(parse_npy(good, "good"));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(parse_npy(std::span(good).first(size), "cut"), FormatError) << size;
  EXPECT_THROW(
      parse_npy(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, 9), "version"),
      FormatError);
  auto long_header = good;
  long_header[8] = long_header[9] = std::byte{0xff};
  EXPECT_THROW(parse_npy(long_header, "long"), FormatError);
}

}  // namespace
}  // namespace rocm_sd
