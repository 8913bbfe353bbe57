// The list of implemented instructions: that the document is what the code does, and that nothing is lost.
#include "emulator/tool/coverage.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "emulator/gpu.hpp"

namespace rocm_sd::emu {
namespace {

TEST(Coverage, TheDocumentIsUpToDate) {
  const std::string document =
      read_file(std::string(ROCM_SD_SOURCE_DIR) + "/docs/reference/emulator-coverage.md", 1 << 20);
  EXPECT_TRUE(document == coverage_markdown())
      << "run: build/cpu/apps/cli/rocm-sd emu coverage >docs/reference/emulator-coverage.md";
}

bool implemented(const std::vector<EncodingCoverage>& all, const std::string& encoding,
                 const std::string& name) {
  for (const auto& e : all)
    if (e.name == encoding) {
      const auto found = e.mnemonics.find(name);
      EXPECT_NE(found, e.mnemonics.end()) << encoding << " " << name;
      return found != e.mnemonics.end() && found->second;
    }
  ADD_FAILURE() << "no encoding " << encoding;
  return false;
}

TEST(Coverage, TriesWhatLlvmDecodes) {
  const auto rdna3 = coverage("gfx1100");
  EXPECT_TRUE(implemented(rdna3, "VOP2", "v_add_f32"));
  EXPECT_TRUE(implemented(rdna3, "VOPD, Y half", "v_dual_lshlrev_b32"));
  EXPECT_TRUE(implemented(rdna3, "VOP3P", "v_wmma_f32_16x16x16_f16"));
  EXPECT_FALSE(implemented(rdna3, "MIMG", "image_sample"));
  EXPECT_TRUE(implemented(coverage("gfx1201"), "GLOBAL", "global_load_b128"));
  EXPECT_TRUE(implemented(coverage("gfx942"), "VOP3P", "v_mfma_f32_16x16x16_f16"));
  EXPECT_THROW(coverage("gfx803"), UsageError);
}

}  // namespace
}  // namespace rocm_sd::emu
