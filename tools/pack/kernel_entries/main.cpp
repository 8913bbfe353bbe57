// kernel_entries FAMILY FOLDER: for each table of a GPU family's kernels and each type of element the file
// FOLDER/<table>_<type>.inc, with a line ROCM_SD_ENTRY(name, row) for each kernel. The .hip files include
// them: a kernel's entry has C linkage and needs a name that is spelt out, which its configuration makes.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "composable_kernels/families/families.hpp"

namespace {

using namespace rocm_sd;

constexpr const char* kTypes[] = {"f16", "bf16"};
constexpr const char* kEightBitTypes[] = {"i8", "f8e4m3"};

class Writer {
 public:
  explicit Writer(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // One file: the rows that wanted() takes, named by name().
  template <class Table, class Wanted, class Name>
  void write(const std::string& file, const Table& table, const Wanted& wanted, const Name& name) {
    std::string text = "// Written by tools/pack/kernel_entries.\n";
    int row = 0;
    for (const auto& config : table) {
      if (wanted(config))
        text += std::string("ROCM_SD_ENTRY(") + name(config).c_str() + ", " + std::to_string(row) + ")\n";
      ++row;
    }
    const std::filesystem::path path = folder_ / (file + ".inc");
    std::ifstream old(path, std::ios::binary);
    if (old && std::string(std::istreambuf_iterator<char>(old), {}) == text)
      return;  // nothing to compile anew
    std::ofstream out(path, std::ios::binary);
    out << text;
    if (!out.flush()) failed_ = true;
  }
  // A file for each 16-bit type.
  template <class Table, class... Mask>
  void write_flash(const std::string& file, const Table& table, Mask... mask) {
    for (const char* type : kTypes)
      write(
          file + "_" + type, table, [](const auto&) { return true; },
          [&](const auto& config) { return kernel_name(config, type, mask...); });
  }
  // Files for each algorithm: they are compiled apart, and some for their target alone.
  template <class Table>
  void write_gemm(const std::string& op, const Table& table, const std::string& types, int per_step = 1) {
    const auto write_for = [&](const char* algorithm, const auto& wanted) {
      write(op + "_" + algorithm + "_" + types, table, wanted, [&](const GemmConfig& config) {
        const bool pairs = uses_tma(config.algorithm);
        return kernel_name(config, (op + "_").c_str(), types.c_str(), pairs ? per_step : 1);
      });
    };
    write_for("tiles", [](const GemmConfig& c) { return c.algorithm == GemmAlgorithm::kTiles; });
    write_for("to_lds", [](const GemmConfig& c) { return c.algorithm == GemmAlgorithm::kLoadsToLds; });
    write_for("wgmma", [](const GemmConfig& c) { return c.algorithm == GemmAlgorithm::kWgmma; });
    const auto resident = [](const GemmConfig& c) { return c.algorithm == GemmAlgorithm::kTmaResident; };
    write_for("tma", [&](const GemmConfig& c) { return uses_tma(c.algorithm) && !resident(c); });
    write_for("resident", resident);
  }
  bool failed() const { return failed_; }

 private:
  std::filesystem::path folder_;
  bool failed_ = false;
};

template <class Family>
void write_family(Writer& to) {
  to.write_flash("flash", Family::kFlash, FlashMask::kNone);
  to.write_flash("flash_any_mask", Family::kFlashAnyMask, FlashMask::kAny);
  to.write_flash("flash_large_d", Family::kFlashLargeD);
  to.write_flash("flash_wgmma", Family::kFlashWgmma);
  to.write_flash("flash_tma", Family::kFlashTma);
  to.write_flash("flash_single_tile_kv", Family::kFlashSingleTileKv);
  to.write_flash("flash_wgmma_large_d", Family::kFlashWgmmaLargeD);
  for (const char* type : kTypes) {
    to.write_gemm("gemm", Family::kGemm, type);
    to.write_gemm("geglu", Family::kGeglu, type);
    to.write_gemm("conv", Family::kConv, type);
    for (const char* eight : kEightBitTypes) {
      const std::string types = std::string(eight) + "_" + type;
      to.write_gemm("gemm", Family::kEightBitGemm, types, 2);
      to.write_gemm("geglu", Family::kEightBitGeglu, types, 2);
    }
  }
  to.write_gemm("gemm", Family::kGemmF32, "f32");
  to.write_gemm("geglu", Family::kGemmF32, "f32");
  to.write_gemm("conv", Family::kConvF32, "f32");
}

template <size_t... i>
bool write_named(const char* family, Writer& to, std::index_sequence<i...>) {
  bool found = false;
  const auto one = [&]<class Family>() {
    if (std::strcmp(Family::kName, family) != 0) return;
    write_family<Family>(to);
    found = true;
  };
  (one.template operator()<std::tuple_element_t<i, KernelFamilies>>(), ...);
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: kernel_entries FAMILY FOLDER\n");
    return 2;
  }
  std::filesystem::create_directories(argv[2]);
  Writer to(argv[2]);
  if (!write_named(argv[1], to, std::make_index_sequence<kKernelFamilies>())) {
    std::fprintf(stderr, "kernel_entries: no family %s in composable_kernels/families/families.hpp\n",
                 argv[1]);
    return 1;
  }
  if (to.failed()) std::fprintf(stderr, "kernel_entries: cannot write to %s\n", argv[2]);
  return to.failed() ? 1 : 0;
}
