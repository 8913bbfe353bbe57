#include "emulator/tool/bound_arguments.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.hpp"
#include "base/format.hpp"

namespace rocm_sd::emu {

namespace {

constexpr size_t kMaxArguments = 1 << 16;  // bytes

bool is_pointer(const KernelArgument& a) { return a.kind == "global_buffer" || a.kind == "image"; }

std::vector<const KernelArgument*> explicit_arguments(const Kernel& kernel) {
  std::vector<const KernelArgument*> out;
  for (const KernelArgument& a : kernel.arguments)
    if (!a.hidden()) out.push_back(&a);
  return out;
}

std::string describe(const KernelArgument& a) {
  std::string out = is_pointer(a)                        ? "pointer"
                    : a.kind == "by_value"               ? concat(a.size, " bytes")
                    : a.kind == "dynamic_shared_pointer" ? "offset in LDS, 4 bytes"
                                                         : concat(printable(a.kind), ", ", a.size, " bytes");
  if (!a.name.empty()) out += concat(" \"", printable(a.name, 60), '"');
  return out;
}

double element(const std::byte* at, const ElementType& type) {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  if (type.npy.kind == 'V' && type.npy.bytes == 2) return bf16_to_float(read(uint16_t{}));
  if (type.npy.kind == 'f')
    return type.npy.bytes == 8   ? read(double{})
           : type.npy.bytes == 4 ? read(float{})
                                 : f16_to_float(read(uint16_t{}));
  if (type.npy.kind == 'i')
    return type.npy.bytes == 8   ? static_cast<double>(read(int64_t{}))
           : type.npy.bytes == 4 ? read(int32_t{})
           : type.npy.bytes == 2 ? read(int16_t{})
                                 : read(int8_t{});
  return type.npy.bytes == 8   ? static_cast<double>(read(uint64_t{}))
         : type.npy.bytes == 4 ? read(uint32_t{})
         : type.npy.bytes == 2 ? read(uint16_t{})
                               : read(uint8_t{});
}

// The name of what a file holds, for messages.
std::string npy_name(const NpyType& type) {
  if (type.kind == 'V' && type.bytes == 2) return "bf16";
  return concat(type.kind, type.bytes * 8);
}

}  // namespace

std::string signature(const Kernel& kernel) {
  std::string out = printable(kernel.name) + "(";
  size_t i = 0;
  for (const KernelArgument* a : explicit_arguments(kernel)) {
    out += concat(i ? ", " : "", i, ": ", describe(*a));
    ++i;
  }
  if (kernel.arguments.empty()) out += concat("no metadata; ", kernel.kernarg_bytes, " bytes");
  return out + ")";
}

BoundArguments::BoundArguments(Gpu& gpu, const Kernel& kernel, const std::vector<ArgumentText>& arguments)
    : gpu_(gpu) {
  const auto wanted = explicit_arguments(kernel);
  if (kernel.arguments.empty()) {
    ArgumentText all;
    all.kind = ArgumentText::Kind::kStruct;
    all.members = arguments;
    bytes_ = lay_out(all).bytes;
    require<UsageError>(bytes_.size() <= kernel.kernarg_bytes, "the arguments take ", bytes_.size(),
                        " bytes: ", signature(kernel));
    bytes_.resize(kernel.kernarg_bytes);
    return;
  }
  require<UsageError>(arguments.size() == wanted.size(), arguments.size(),
                      " arguments given, the kernel takes ", wanted.size(), ": ", signature(kernel));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const KernelArgument& a = *wanted[i];
    const Laid laid = lay_out(arguments[i]);
    const bool pointer = arguments[i].kind == ArgumentText::Kind::kBuffer;
    require<UsageError>(!is_pointer(a) || pointer ||
                            (arguments[i].kind == ArgumentText::Kind::kScalar && laid.bytes.size() == 8),
                        "argument ", i, " (", arguments[i].text, ") is no buffer: ", signature(kernel));
    // C++ pads a struct at its end; a user need not write that.
    const size_t padded = (laid.bytes.size() + laid.align - 1) / laid.align * laid.align;
    const bool fits =
        laid.bytes.size() == a.size || (arguments[i].kind == ArgumentText::Kind::kStruct && padded == a.size);
    require<UsageError>(fits, "argument ", i, " (", arguments[i].text, ") has ", laid.bytes.size(),
                        " bytes, expected ", a.size, ": ", signature(kernel));
    if (bytes_.size() < a.offset + a.size) bytes_.resize(a.offset + a.size);
    std::memcpy(bytes_.data() + a.offset, laid.bytes.data(), laid.bytes.size());
  }
}

BoundArguments::Laid BoundArguments::lay_out(const ArgumentText& a) {
  Laid out;
  switch (a.kind) {
    case ArgumentText::Kind::kScalar: return {a.value, a.value.size()};
    case ArgumentText::Kind::kPadding: return {std::vector<std::byte>(a.padding), 1};
    case ArgumentText::Kind::kBuffer: {
      const uint64_t address = make_buffer(a);
      out.bytes.resize(sizeof(address));
      std::memcpy(out.bytes.data(), &address, sizeof(address));
      out.align = sizeof(address);
      return out;
    }
    case ArgumentText::Kind::kStruct: break;
  }
  for (const ArgumentText& member : a.members) {
    const Laid laid = lay_out(member);
    const size_t at = (out.bytes.size() + laid.align - 1) / laid.align * laid.align;
    require<UsageError>(at + laid.bytes.size() <= kMaxArguments, a.text, ": more than ", kMaxArguments,
                        " bytes");
    out.bytes.resize(at + laid.bytes.size());
    std::copy(laid.bytes.begin(), laid.bytes.end(), out.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    out.align = std::max(out.align, laid.align);
    if (member.kind == ArgumentText::Kind::kStruct)  // the next member begins after its padding
      out.bytes.resize((out.bytes.size() + laid.align - 1) / laid.align * laid.align);
  }
  return out;
}

uint64_t BoundArguments::make_buffer(const ArgumentText& a) {
  Buffer b{a.text, a.to, a.type, a.shape};
  b.written = a.from.empty() || !a.to.empty();
  NpyArray file;
  if (!a.from.empty()) {
    file = read_npy(a.from);
    b.type = {npy_name(file.type), file.type};
    b.shape = file.shape;
    b.bytes = file.data.size();
  } else {
    b.bytes = b.type.npy.bytes;
    for (const uint64_t n : b.shape) b.bytes *= n;  // the text's parser has bounded it
  }
  b.data = static_cast<std::byte*>(gpu_.allocate_watched(b.bytes));
  if (a.poisoned)
    std::memset(b.data, 0xff, b.bytes);  // not through the Gpu: to --check nothing has written it
  else if (a.from.empty())
    gpu_.zero(b.data, b.bytes);
  else
    gpu_.write(b.data, file.data.data(), b.bytes);
  buffers_.push_back(b);
  return reinterpret_cast<uint64_t>(b.data);
}

std::vector<std::string> BoundArguments::places() const {
  std::vector<std::string> out;
  for (const Buffer& b : buffers_)
    out.push_back(fmt::format("memory {:#x} {} {}", reinterpret_cast<uintptr_t>(b.data), b.bytes, b.text));
  return out;
}

std::vector<std::string> BoundArguments::store() const {
  constexpr size_t kShown = 8;
  std::vector<std::string> out;
  for (const Buffer& b : buffers_) {
    if (!b.written) continue;
    if (!b.to.empty()) write_npy(b.to, b.type.npy, b.shape, {b.data, b.bytes});
    std::string line = b.text + ":";
    const size_t count = b.bytes / b.type.npy.bytes;
    if (b.type.npy.kind == 'c' || (b.type.npy.kind == 'V' && b.type.npy.bytes == 1)) {
      out.push_back(concat(line, " ", count, " elements"));
      continue;
    }
    size_t not_numbers = 0;
    for (size_t i = 0; i < count; ++i) {
      const double value = element(b.data + i * b.type.npy.bytes, b.type);
      not_numbers += std::isnan(value) ? 1 : 0;
      if (i < kShown) line += fmt::format(" {:.7g}", value);
    }
    if (count > kShown) line += " ...";
    if (not_numbers) line += concat(" (", not_numbers, " NaN of ", count, ")");
    if (const size_t left = gpu_.unwritten(b.data, b.bytes))
      line += concat(" (", left, " of ", b.bytes, " bytes never written)");
    out.push_back(line);
  }
  return out;
}

}  // namespace rocm_sd::emu
