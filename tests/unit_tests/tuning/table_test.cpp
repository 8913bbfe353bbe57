// Tables of tuned choices: what is written is read, damage costs its line only, and the record that suits
// best is found.
#include "tuning/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"

namespace rocm_sd::tuning {
namespace {

Record sample() {
  return {{"NVIDIA H200", "sm_90", 132, "0.1.0+0123456789abcdef"},
          "linear",
          "8192x320x320 f16 bias",
          "gpu 128x160x64g/2",
          "gpu 128x128x64g",
          12.5,
          14.75,
          Origin::kMeasured,
          "2026-11-21"};
}

TEST(TuningRecord, SurvivesARoundTrip) {
  const Record record = sample();
  EXPECT_EQ(parse_record(format_record(record)), record);
  Record model = record;
  model.origin = Origin::kModel;
  model.default_choice = "";
  EXPECT_EQ(parse_record(format_record(model)), model);
}

TEST(TuningRecord, EveryChangedByteIsSeen) {
  const std::string line = format_record(sample());
  for (size_t i = 0; i < line.size(); ++i)
    for (const char c : {'0', 'x', '\t', '\n', '\0'}) {
      if (line[i] == c) continue;
      std::string changed = line;
      changed[i] = c;
      EXPECT_FALSE(parse_record(changed)) << "byte " << i << " as " << static_cast<int>(c);
    }
  for (size_t length = 0; length < line.size(); ++length)
    EXPECT_FALSE(parse_record(line.substr(0, length))) << length;
  EXPECT_FALSE(parse_record(line + "0"));
  EXPECT_FALSE(parse_record(line + "\t"));
}

// Lines whose checksum is right and whose content is not.
TEST(TuningRecord, RefusesBadValuesUnderAGoodChecksum) {
  const auto with = [](size_t field, const std::string& value) {
    std::string body = format_record(sample());
    body.resize(body.rfind('\t'));
    std::string out;
    for (size_t i = 0, at = 0; at <= body.size(); ++i) {
      const size_t tab = std::min(body.find('\t', at), body.size());
      out += (i ? "\t" : "") + (i == field ? value : body.substr(at, tab - at));
      at = tab + 1;
    }
    return out + "\t" + record_checksum(out);
  };
  EXPECT_TRUE(parse_record(with(99, "")));  // the checksum above is the table's
  for (const auto& [field, value] : std::vector<std::pair<size_t, std::string>>{{2, "-1"},
                                                                                {2, "12x"},
                                                                                {2, "99999999999"},
                                                                                {2, ""},
                                                                                {4, ""},
                                                                                {5, ""},
                                                                                {6, ""},
                                                                                {8, "nan"},
                                                                                {8, "inf"},
                                                                                {8, "-3"},
                                                                                {9, "fast"},
                                                                                {10, "guess"},
                                                                                {10, ""}})
    EXPECT_FALSE(parse_record(with(field, value))) << field << " " << value;
  EXPECT_FALSE(parse_record(with(6, std::string(400, 'a'))));
  EXPECT_FALSE(parse_record(with(6, "gpu \x1b[2J")));
}

TEST(TuningRecord, WhatATableCannotHoldIsRefused) {
  Record record = sample();
  record.choice = "gpu\tx";
  EXPECT_THROW(format_record(record), UsageError);
  record.choice = std::string(1000, 'x');
  EXPECT_THROW(format_record(record), UsageError);
}

TEST(TuningTable, DamagedLinesCostThemselvesOnly) {
  Record other = sample();
  other.problem = "4096x320x320 f16";
  const std::string good = format_record(sample()), second = format_record(other);
  std::string torn = second;
  torn.resize(torn.size() / 2);
  const Table table =
      Table::parse(concat(kTableHeader, "\n# comment\n", torn, "\n", good, "\n\nnonsense\n", second), "t");
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.bad_lines(), 2u);
  EXPECT_EQ(Table::parse(table.text(), "again").records(), table.records());
}

TEST(TuningTable, AnotherFormatIsNoTable) {
  for (const std::string text : {"", "# rocm-sd tuning table 3\n", "{}", "PT_VERSION,2.4\n"})
    EXPECT_THROW(Table::parse(text, "t"), FormatError) << text;
}

TEST(TuningTable, TheFirstVersionIsReadUnderTodaysNames) {
  const auto choice_of = [](std::string_view header, const std::string& choice) {
    Record record = sample();
    record.choice = record.default_choice = choice;
    const auto records = Table::parse(concat(header, "\n", format_record(record), "\n"), "t").records();
    EXPECT_EQ(records.size(), 1u);
    EXPECT_EQ(records.at(0).choice, records.at(0).default_choice);
    return records.at(0).choice;
  };
  for (const std::string_view header : {kTableHeader1, kTableHeader}) {  // a journal may have both
    EXPECT_EQ(choice_of(header, "gpu flash_group_wide_f16_d512/2"), "gpu flash_wgmma_large_d_f16_d512/2");
    EXPECT_EQ(choice_of(header, "gpu flash_group_f16_d64_g1x3"), "gpu flash_wgmma_f16_d64_g1x3");
    EXPECT_EQ(choice_of(header, "gpu flash_bulk_bf16_d64_k64"), "gpu flash_tma_bf16_d64_k64");
    EXPECT_EQ(choice_of(header, "gpu flash_once_f16_d40"), "gpu flash_single_tile_kv_f16_d40");
    EXPECT_EQ(choice_of(header, "gpu flash_wide_f16_d512"), "gpu flash_large_d_f16_d512");
    for (const char* kept :
         {"gpu flash_f16_d64_q16_k64_w8_s2/3", "gpu 128x160x64b2", "flash_wide_f16", "ref"})
      EXPECT_EQ(choice_of(header, kept), kept);
  }
}

TEST(TuningTable, RandomBytesNeverDoHarm) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string text =
        concat(kTableHeader, "\n", format_record(sample()), "\n", format_record(sample()), "\n");
    for (int i = 0; i < 6; ++i)
      text[kTableHeader.size() + 1 + random() % (text.size() - kTableHeader.size() - 1)] =
          static_cast<char>(random());
    const Table table = Table::parse(text, "t");
    EXPECT_EQ(Table::parse(table.text(), "again").records(), table.records());
  }
}

TEST(TuningTable, FindsTheRecordThatSuitsBest) {
  const Identity here{"NVIDIA H200", "sm_90", 132, "0.1.0+aa"};
  Record same = sample(), other_code = sample(), sibling = sample(), larger = sample(), model = sample();
  same.device = here;
  same.choice = "gpu same";
  other_code.device.code = "0.0.9+bb";
  other_code.choice = "gpu other code";
  sibling.device = {"NVIDIA H100 SXM", "sm_90", 132, "0.1.0+aa"};
  sibling.choice = "gpu sibling";
  larger.device = {"NVIDIA H300", "sm_90", 160, "0.1.0+aa"};
  model = same;
  model.origin = Origin::kModel;
  model.choice = "gpu model";
  const auto found = [&](const std::vector<Record>& records) {
    Table table;
    for (const Record& r : records) table.add(r);
    const Record* best = table.find(here, "linear", sample().problem);
    return best ? best->choice : "none";
  };
  EXPECT_EQ(found({larger}), "none");
  EXPECT_EQ(found({larger, sibling}), "gpu sibling");
  EXPECT_EQ(found({sibling, other_code}), "gpu other code");
  EXPECT_EQ(found({same, sibling, other_code}), "gpu same");
  EXPECT_EQ(found({same, model}), "gpu same");
  EXPECT_EQ(found({model, same}), "gpu same");
  EXPECT_EQ(found({model}), "gpu model");
  EXPECT_EQ(found({model, sibling}), "gpu sibling");  // measured, if on another card
  EXPECT_EQ(found({other_code, model}), "gpu other code");
  Table table;
  table.add(same);
  EXPECT_EQ(table.find(here, "conv2d", sample().problem), nullptr);
  EXPECT_EQ(table.find(here, "linear", "1x1x1 f16"), nullptr);
  EXPECT_EQ(table.find_exact({"NVIDIA H100 SXM", "sm_90", 132, "0.1.0+aa"}, "linear", sample().problem),
            nullptr);
}

TEST(TuningTable, ACpuIsNoOtherCpu) {
  const Identity here{"EPYC, 8 threads", "host", 8, "0.1.0"}, there{"Xeon, 8 threads", "host", 8, "0.1.0"};
  EXPECT_EQ(match(here, here), Match::kSame);
  EXPECT_EQ(match(here, there), Match::kNone);
}

TEST(TuningTable, MergingKeepsTheBetterFounded) {
  Record old = sample(), young = sample(), model = sample();
  old.date = "2026-01-01";
  old.choice = "gpu old";
  model.origin = Origin::kModel;
  model.date = "2027-01-01";
  for (const std::vector<Record>& order :
       {std::vector{old, young, model}, {model, young, old}, {young, model, old}}) {
    Table table;
    for (const Record& r : order) {
      Table one;
      one.add(r);
      table.merge(one);
    }
    ASSERT_EQ(table.size(), 1u);
    EXPECT_EQ(table.records()[0], young);
  }
}

}  // namespace
}  // namespace rocm_sd::tuning
