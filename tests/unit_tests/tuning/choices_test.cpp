// Which tables a process goes by.
#include "tuning/choices.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "runtime/device.hpp"

namespace rocm_sd::tuning {
namespace {

namespace fs = std::filesystem;

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

Table table_with(const Identity& device, const std::string& choice) {
  Table table;
  table.add({device, "linear", "8x8x8 f32", choice, "tiled", 1, 2, Origin::kMeasured, "2026-11-21"});
  return table;
}

TEST(TunedChoice, ComesFromTheTableInScope) {
  const Table table = table_with(identity_of(host_device()), "onednn");
  EXPECT_EQ(tuned_choice(host_device(), "linear", "8x8x8 f32"), std::nullopt);  // the tests' environment
  {
    const TuningScope scope(&table);
    EXPECT_EQ(tuned_choice(host_device(), "linear", "8x8x8 f32"), "onednn");
    EXPECT_EQ(tuned_choice(host_device(), "linear", "9x8x8 f32"), std::nullopt);
    EXPECT_EQ(tuned_choice(host_device(), "conv2d", "8x8x8 f32"), std::nullopt);
    const TuningScope none(nullptr);
    EXPECT_EQ(tuned_choice(host_device(), "linear", "8x8x8 f32"), std::nullopt);
  }
  EXPECT_EQ(tuned_choice(host_device(), "linear", "8x8x8 f32"), std::nullopt);
}

TEST(TunedChoice, AnotherMachinesTableSaysNothing) {
  Identity other = identity_of(host_device());
  other.product += " with more cores";
  const Table table = table_with(other, "onednn");
  const TuningScope scope(&table);
  EXPECT_EQ(tuned_choice(host_device(), "linear", "8x8x8 f32"), std::nullopt);
}

TEST(TableFiles, ShippedThenTheUsersOwn) {
  std::string name = (fs::temp_directory_path() / "choices.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  const Identity device{"Some GPU", "gfx9999", 8, "0.1.0+aa"};
  const Variable share("ROCM_SD_SHARE", (folder / "share").c_str()),
      cache("XDG_CACHE_HOME", (folder / "cache").c_str());
  const Variable on("ROCM_SD_TUNING", nullptr);
  EXPECT_TRUE(table_files(device).empty());
  const fs::path shipped = folder / "share" / "tuning" / "gfx9999.tsv", own = user_table_file(device);
  EXPECT_EQ(own, folder / "cache" / "rocm-sd" / "tuning" / "gfx9999.tsv");
  table_with(device, "gpu shipped").write(shipped);
  EXPECT_EQ(table_files(device), std::vector{shipped});
  table_with(device, "gpu own").write(own);
  EXPECT_EQ(table_files(device), (std::vector{shipped, own}));
  EXPECT_EQ(read_tables(device).find(device, "linear", "8x8x8 f32")->choice, "gpu own");
  std::ofstream(own) << "no table at all\n";  // costs itself only
  EXPECT_EQ(read_tables(device).find(device, "linear", "8x8x8 f32")->choice, "gpu shipped");
  {
    const Variable off("ROCM_SD_TUNING", "off");
    EXPECT_TRUE(table_files(device).empty());
    const Variable other("ROCM_SD_TUNING", "/elsewhere/table.tsv");
    EXPECT_EQ(table_files(device), std::vector<fs::path>{"/elsewhere/table.tsv"});
    EXPECT_EQ(read_tables(device).size(), 0u);  // it does not exist: a warning, not an end
  }
  fs::remove_all(folder);
}

TEST(Identity, OfTheHost) {
  const Identity host = identity_of(host_device());
  EXPECT_EQ(host.arch, "host");
  EXPECT_EQ(host.units, host_threads());
  EXPECT_FALSE(host.product.empty());
  EXPECT_FALSE(host.product.starts_with("host:"));
  EXPECT_FALSE(host.code.empty());
}

}  // namespace
}  // namespace rocm_sd::tuning
