// A user's arguments laid out for a kernel: buffers on the emulated GPU, and the bytes that the launch takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "emulator/gpu.hpp"
#include "emulator/tool/argument_text.hpp"

namespace rocm_sd::emu {

class BoundArguments {
 public:
  // Reads the files, allocates the buffers and lays the values out as the kernel's metadata says (where it
  // has none: aligned one after the other). Throws UsageError naming the argument that does not fit and the
  // kernel's signature; FileError and FormatError for files.
  BoundArguments(Gpu& gpu, const Kernel& kernel, const std::vector<ArgumentText>& arguments);

  std::span<const std::byte> bytes() const { return bytes_; }

  // "memory 0x7f0012340000 4096 in:a.npy" for each buffer: where it is, its bytes and the text it came from.
  std::vector<std::string> places() const;

  // After the run. Writes the files of inout, out and zeros; returns a line of text for each such buffer.
  std::vector<std::string> store() const;

 private:
  struct Buffer {
    std::string text, to;
    ElementType type;
    std::vector<uint64_t> shape;
    std::byte* data = nullptr;
    size_t bytes = 0;
    bool written = false;  // reported and stored
  };
  struct Laid {
    std::vector<std::byte> bytes;
    size_t align = 1;
  };
  Laid lay_out(const ArgumentText& argument);
  uint64_t make_buffer(const ArgumentText& argument);

  Gpu& gpu_;
  std::vector<Buffer> buffers_;
  std::vector<std::byte> bytes_;
};

// "vadd(0: pointer, 1: pointer, 2: 4 bytes \"n\")", the arguments that a launch gives.
std::string signature(const Kernel& kernel);

}  // namespace rocm_sd::emu
