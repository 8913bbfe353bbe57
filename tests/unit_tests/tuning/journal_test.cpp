// The journal: what was appended is there after a kill, whatever the kill hit.
#include "tuning/journal.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"

namespace rocm_sd::tuning {
namespace {

namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    std::string name = (fs::temp_directory_path() / "journal.XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "deeper" / "host.tsv";
  }
  ~JournalTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  static Record record(int i) {
    return {{"a CPU", "host", 2, "0.1.0"},
            "linear",
            concat(i, "x64x64 f32"),
            "tiled",
            "tiled",
            1,
            1,
            Origin::kMeasured,
            "2026-11-21"};
  }
  fs::path folder_, path_;
};

TEST_F(JournalTest, ANewOneContinuesTheOld) {
  {
    Journal journal(path_);
    EXPECT_EQ(journal.table().size(), 0u);
    for (int i = 0; i < 5; ++i) journal.append(record(i));
  }
  Journal journal(path_);
  EXPECT_EQ(journal.table().size(), 5u);
  journal.append(record(5));
  EXPECT_EQ(Table::read(path_).size(), 6u);
  EXPECT_EQ(Table::read(path_).bad_lines(), 0u);
}

TEST_F(JournalTest, EveryCutOfTheFileKeepsTheWholeLines) {
  {
    Journal journal(path_);
    for (int i = 0; i < 3; ++i) journal.append(record(i));
  }
  const std::string text = read_file(path_, 1 << 20);
  for (size_t length = kTableHeader.size(); length < text.size(); ++length) {
    std::ofstream(path_, std::ios::trunc | std::ios::binary) << text.substr(0, length);
    const auto whole = static_cast<size_t>(std::ranges::count(text.substr(0, length), '\n'));
    const size_t records = whole > 0 ? whole - 1 : 0;
    // A line without its newline may be whole, too.
    Journal journal(path_);
    EXPECT_GE(journal.table().size(), records);
    EXPECT_LE(journal.table().size(), records + 1);
    journal.append(record(7));
    const Table table = Table::read(path_);
    EXPECT_EQ(table.size(), journal.table().size()) << "cut at " << length;
    EXPECT_LE(table.bad_lines(), 1u);
  }
}

TEST_F(JournalTest, AKilledProcessLosesNothingThatItAppended) {
  int progress[2];
  ASSERT_EQ(pipe(progress), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Journal journal(path_);
    for (int i = 0;; ++i) {
      journal.trying(concat("candidate ", i));
      journal.append(record(i));
      if (write(progress[1], "x", 1) != 1) _exit(1);
    }
  }
  char byte;
  for (int i = 0; i < 200; ++i) ASSERT_EQ(read(progress[0], &byte, 1), 1);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(progress[0]);
  close(progress[1]);
  Journal journal(path_);  // the lock went with the process
  EXPECT_GE(journal.table().size(), 200u);
  EXPECT_LE(journal.table().bad_lines(), 1u);
  EXPECT_TRUE(journal.interrupted().starts_with("candidate ")) << journal.interrupted();
  journal.trying("");
  journal.compact();
  EXPECT_EQ(Table::read(path_).bad_lines(), 0u);
  EXPECT_EQ(Journal(path_).interrupted(), "");
}

TEST_F(JournalTest, TwoWritersDoNotMixTheirLines) {
  const auto work = [&](int first) {
    Journal journal(path_);
    for (int i = 0; i < 100; ++i) journal.append(record(first + i));
  };
  std::thread one(work, 0), two(work, 1000);
  one.join();
  two.join();
  const Table table = Table::read(path_);
  EXPECT_EQ(table.size(), 200u);
  EXPECT_EQ(table.bad_lines(), 0u);
}

TEST_F(JournalTest, CompactingKeepsWhatOthersWrote) {
  Journal mine(path_);
  mine.append(record(1));
  Journal theirs(path_);
  theirs.append(record(2));
  mine.compact();
  EXPECT_EQ(Table::read(path_).size(), 2u);
  EXPECT_EQ(mine.table().size(), 2u);
}

TEST_F(JournalTest, AFileThatIsNoTableIsSetAside) {
  fs::create_directories(path_.parent_path());
  std::ofstream(path_) << "something else\n";
  Journal journal(path_);
  journal.append(record(1));
  EXPECT_EQ(Table::read(path_).size(), 1u);
  EXPECT_EQ(read_file(path_.string() + ".bad", 100), "something else\n");
}

TEST_F(JournalTest, AFolderThatCannotBeMadeIsAFileError) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THROW(Journal(folder_ / "file" / "host.tsv"), FileError);
}

}  // namespace
}  // namespace rocm_sd::tuning
