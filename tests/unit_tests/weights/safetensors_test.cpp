// The safetensors reader and writer: every rule, each broken by one crafted file, and round trips.
#include "weights/safetensors.hpp"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "unit_tests/weights/safetensors_files.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

struct BadFile {
  std::string name;   // of the case
  std::string bytes;  // of the file
  std::string says;   // part of the message
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

std::string tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return concat(R"({"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets, "}");
}
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets, size_t data) {
  return file_bytes(concat(R"({"w":)", tensor(dtype, shape, offsets), "}"), data);
}
std::string length_only(uint64_t length, size_t rest = 100) {
  std::string out(8 + rest, ' ');
  std::memcpy(out.data(), &length, 8);
  return out;
}
std::string many_tensors(size_t count) {
  std::string header = "{";
  for (size_t i = 0; i < count; ++i)
    header += concat(i ? "," : "", "\"t", i, "\":", tensor("U8", "[4]", "[0,4]"));
  return header + "}";
}

std::vector<BadFile> bad_files() {
  const std::string u8 = tensor("U8", "[4]", "[0,4]");
  const std::string lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  return {
      {"Empty", "", "the file is empty"},
      {"SevenBytes", "1234567", "too short"},
      {"LengthAllOnes", length_only(~uint64_t{0}), "above the limit"},
      {"LengthIsFileSize", length_only(108), "truncated inside the header"},
      {"LengthAboveCap", length_only(100'000'001), "above the limit"},
      {"LengthZero", length_only(0), "too small"},
      {"HeaderNotUtf8", file_bytes("{\"\xff\xfe\":1}", 0), "not valid UTF-8"},
      {"HeaderIsArray", file_bytes("[]", 0), "must begin with '{'"},
      {"HeaderIsNull", file_bytes("null", 0), "must begin with '{'"},
      {"LeadingSpace", file_bytes(" {}", 0), "must begin with '{'"},
      {"NulInHeader", file_bytes(std::string_view("{}\0", 3), 0), "other than spaces"},
      {"NulInside", file_bytes(std::string_view("{\0}", 3), 0), "NUL byte"},
      {"BytesAfterBrace", file_bytes("{}x", 0), "other than spaces"},
      {"TwoValues", file_bytes("{}{}", 0), "not valid JSON"},
      {"NewlinePadding", file_bytes("{}\n", 0), "other than spaces"},
      {"NotJson", file_bytes("{\"w\":}", 0), "not valid JSON"},
      {"DuplicateName", file_bytes(concat(R"({"w":)", u8, R"(,"w":)", tensor("F32", "[1]", "[0,4]"), "}"), 4),
       "two entries for tensor \"w\""},
      {"DuplicateField",
       file_bytes(R"({"w":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
       "stands twice"},
      {"DuplicateMetadata", file_bytes(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "two metadata entries"},
      {"TwoMetadata", file_bytes(R"({"__metadata__":{},"__metadata__":{}})", 0), "two entries"},
      {"Overlap", file_bytes(many_tensors(100'000), 4), "overlaps"},
      {"Hole", file_bytes(concat(R"({"a":)", u8, R"(,"b":)", tensor("U8", "[4]", "[5,9]"), "}"), 9),
       "after a hole"},
      {"FirstNotAtZero", one("U8", "[4]", "[1,5]", 5), "after a hole"},
      {"BytesAfterLast", one("U8", "[4]", "[0,4]", 5), "1 bytes after the last tensor"},
      {"Truncated", one("U8", "[1000]", "[0,1000]", 400), "600 of 1000 bytes of tensor data are missing"},
      {"EndBeforeStart", one("U8", "[4]", "[4,0]", 4), "end before they begin"},
      {"ShapeOverflow", one("F32", "[8589934592,8589934592]", "[0,4]", 4), "overflows"},
      {"BytesOverflow", one("F64", "[1099511627776,4194304]", "[0,4]", 4), "overflows"},
      {"SizeMismatch", one("F64", "[4]", "[0,16]", 16), "needs 32 bytes, data_offsets give 16"},
      {"NegativeDim", one("U8", "[-4]", "[0,4]", 4), "negative number"},
      {"FloatDim", one("U8", "[4.0]", "[0,4]", 4), "no integer"},
      {"HugeFloatDim", one("U8", "[1e400]", "[0,4]", 4), "not valid JSON"},
      {"HugeIntegerDim", one("U8", "[99999999999999999999]", "[0,4]", 4), "no integer"},
      {"StringDim", one("U8", "[\"4\"]", "[0,4]", 4), "found a string"},
      {"NullDim", one("U8", "[null]", "[0,4]", 4), "found null"},
      {"BoolDim", one("U8", "[true]", "[0,4]", 4), "found a boolean"},
      {"NestedShape", one("U8", "[[4]]", "[0,4]", 4), "found an array"},
      {"ShapeIsNumber", one("U8", "4", "[0,4]", 4), "found a number"},
      {"ThreeOffsets", one("U8", "[4]", "[0,4,4]", 4), "more than two"},
      {"OneOffset", one("U8", "[4]", "[0]", 4), "must have two numbers"},
      {"NegativeOffset", one("U8", "[4]", "[-1,3]", 4), "negative number"},
      {"UnknownDtype", one("Q4_K", "[4]", "[0,4]", 4), "unknown dtype \"Q4_K\""},
      {"DtypeIsNumber", file_bytes(R"({"w":{"dtype":1,"shape":[4],"data_offsets":[0,4]}})", 4),
       "found a number"},
      {"MisalignedF4", one("F4", "[3]", "[0,1]", 1), "whole byte"},
      {"MisalignedF6", one("F6_E2M3", "[2]", "[0,1]", 1), "whole byte"},
      {"UnsupportedF4", one("F4", "[4]", "[0,2]", 2), "dtype F4 is not supported"},
      {"NineDims", one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1), "more than 8 dimensions"},
      {"DimAbove2To40", one("U8", "[1099511627777,0]", "[0,0]", 0), "above 2^40"},
      {"DeepMetadata", file_bytes("{\"__metadata__\":{\"a\":" + std::string(100'000, '[') + "}}", 0),
       "is an array"},
      {"MetadataNumber", file_bytes(R"({"__metadata__":{"a":1}})", 0), "expected a string"},
      {"MetadataArray", file_bytes(R"({"__metadata__":[]})", 0), "found an array"},
      {"MissingShape", file_bytes(R"({"w":{"dtype":"U8","data_offsets":[0,4]}})", 4), "must all be there"},
      {"UnknownField", file_bytes(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", 4),
       "unknown field"},
      {"TensorIsNumber", file_bytes(R"({"w":4})", 0), "expected an object"},
      {"LongName", file_bytes("{\"" + std::string(1025, 'n') + "\":" + u8 + "}", 4), "1025 bytes"},
      {"TenMegabyteName", file_bytes("{\"" + std::string(10'000'000, 'n') + "\":" + u8 + "}", 4),
       "10000000 bytes"},
      {"NameWithNewline", file_bytes("{\"a\\nb\":" + u8 + "}", 4), "control byte"},
      {"NameWithEscape", file_bytes("{\"\\u001b[31m\":" + u8 + "}", 4), "control byte"},
      {"NameWithNul", file_bytes("{\"a\\u0000b\":" + u8 + "}", 4), "control byte"},
      {"LfsPointer", lfs, "git-LFS pointer"},
      {"Zip", "PK\x03\x04" + std::string(100, 'x'), "zip archive"},
      {"Pickle", "\x80\x02}q\x01" + std::string(100, 'x'), "pickle"},
      {"Html", "<!DOCTYPE html><html><head>" + std::string(100, 'x'), "HTML"},
      {"Gguf", "GGUF" + std::string(100, '\0'), "GGUF"},
      {"Json", R"({"weight_map":{}})" + std::string(100, ' '), "JSON"},
  };
}

class BadSafetensors : public testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefusedWithASentence) {
  const TemporaryFolder folder;
  const auto path = folder.write("bad.safetensors", GetParam().bytes);
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kMap}) {
    const std::string text = error_of<FormatError>([&] { SafetensorsFile::open(path, access); });
    EXPECT_THAT(text, HasSubstr(GetParam().says));
    EXPECT_THAT(text, HasSubstr("bad.safetensors"));
    EXPECT_LT(text.size(), 1200u);
  }
}
INSTANTIATE_TEST_SUITE_P(All, BadSafetensors, testing::ValuesIn(bad_files()),
                         [](const auto& info) { return info.param.name; });

// 10^7 tensors would be a header above the 100 MB cap; just over the tensor limit is what can be built.
TEST(Safetensors, RefusesMoreThanAMillionTensors) {
  std::string header = "{";
  for (int i = 0; i <= 1'000'000; ++i)
    header += concat(i ? "," : "", '"', i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  EXPECT_THAT(error_of<FormatError>([&] { parse_safetensors_header(header + "}", 0, "f"); }),
              HasSubstr("more than 1000000 tensors"));
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "socket").c_str(), sizeof address.sun_path - 1);
  const int handle = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(handle, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto says = [](const std::filesystem::path& path) {
    return error_of<FileError>([&] { SafetensorsFile::open(path); });
  };
  EXPECT_THAT(says(folder / "folder"), HasSubstr("a folder"));
  EXPECT_THAT(says(folder / "fifo"), HasSubstr("a FIFO"));
  EXPECT_THAT(says(folder / "socket"), HasSubstr("a socket"));
  EXPECT_THAT(says("/dev/zero"), HasSubstr("a device"));
  EXPECT_THAT(says(folder / "dangling"), HasSubstr("symbolic link"));
  EXPECT_THAT(says(folder / "absent"), HasSubstr("No such file"));
  EXPECT_THAT(says(folder / "bell\a\n"), HasSubstr("\\x07\\x0a"));
  close(handle);
}

// Root may read everything: it is nobody as long as one of these lives.
class WithoutPrivilege {
 public:
  WithoutPrivilege() {
    if (geteuid() == 0) changed_ = seteuid(65534) == 0;
  }
  ~WithoutPrivilege() {
    if (changed_ && seteuid(0) != 0) std::abort();
  }

 private:
  bool changed_ = false;
};

TEST(Safetensors, RefusesAnUnreadableFile) {
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0755});
  const auto path = folder.write("secret.safetensors", one("U8", "[4]", "[0,4]", 4));
  const auto open = folder.write("open.safetensors", one("U8", "[4]", "[0,4]", 4));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  std::filesystem::permissions(open, std::filesystem::perms{0644});
  const WithoutPrivilege nobody;
  if (geteuid() == 0) GTEST_SKIP() << "root, and not allowed to be another user";
  EXPECT_NO_THROW(SafetensorsFile::open(open));
  EXPECT_THAT(error_of<FileError>([&] { SafetensorsFile::open(path); }), HasSubstr("Permission denied"));
}

TEST(Safetensors, AcceptsTheLegalOddities) {
  const std::string header =
      concat(R"({"__metadata__":{"k":"v\n"},"s":)", tensor("F16", "[]", "[0,2]"), R"(,"z":)",
             tensor("F32", "[3,0]", "[2,2]"), R"(,"odd":)", tensor("F32", "[1]", "[2,6]"), "}  ");
  const SafetensorsHeader parsed = parse_safetensors_header(header, 6, "f");
  ASSERT_EQ(parsed.entries.size(), 3u);
  EXPECT_EQ(parsed.entries[0].shape.rank(), 0);
  EXPECT_EQ(parsed.entries[1].numel(), 0);
  EXPECT_EQ(parsed.entries[2].begin, 2u);  // not aligned to its type: copied, not mapped
  EXPECT_EQ(parsed.metadata.at("k"), "v\n");
  EXPECT_TRUE(parse_safetensors_header("{}", 0, "f").entries.empty());
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = one("F32", "[5]", "[0,20]", 20);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto path = folder.write("cut.safetensors", whole.substr(0, size));
    EXPECT_THROW(SafetensorsFile::open(path), FormatError) << size;
  }
  EXPECT_NO_THROW(SafetensorsFile::open(folder.write("cut.safetensors", whole)));
}

TEST(Safetensors, WriterRoundTripsEveryType) {
  const TemporaryFolder folder;
  const auto path = folder / "types.safetensors";
  std::vector<TensorToWrite> tensors;
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kF64, DType::kI64,
        DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool})
    tensors.push_back(tensor_of(std::string(dtype_name(dtype)), {3, 7}, dtype, random_values(21, 5)));
  tensors.push_back(tensor_of("scalar", {}, DType::kF32, {2.5f}));
  tensors.push_back(tensor_of("nothing", {0, 4}, DType::kF16, {}));
  const std::vector<TensorToWrite> copy = tensors;
  write_safetensors(path, tensors, {{"a\"b", "\u00e9\n"}});
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kMap}) {
    const auto file = SafetensorsFile::open(path, access);
    EXPECT_EQ(file->metadata().at("a\"b"), "\u00e9\n");
    ASSERT_EQ(file->entries().size(), copy.size());
    for (const TensorToWrite& tensor : copy) {
      const TensorEntry* entry = file->find(tensor.name);
      ASSERT_NE(entry, nullptr) << tensor.name;
      EXPECT_EQ(entry->shape, tensor.shape);
      EXPECT_EQ(entry->begin % dtype_size(entry->dtype), 0u) << tensor.name;
      std::string want(entry->bytes, '\0'), got(entry->bytes, '\1');
      if (entry->bytes > 0) tensor.fill(0, want.size(), want.data());
      file->read(*entry, 0, entry->bytes, got.data());
      EXPECT_EQ(got, want) << tensor.name;
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "a temporary file was left";
}

TEST(Safetensors, WriterRefusesBadNamesAndLeavesTheOldFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("out.safetensors", "old");
  const TensorToWrite w = tensor_of("w", {1}, DType::kF32, {1});
  EXPECT_THROW(write_safetensors(path, {w, w}, {}), FormatError);
  EXPECT_THROW(write_safetensors(path, {tensor_of("\xff", {1}, DType::kF32, {1})}, {}), FormatError);
  EXPECT_THROW(write_safetensors(path, {tensor_of("__metadata__", {1}, DType::kF32, {1})}, {}), FormatError);
  TensorToWrite fails = w;
  fails.fill = [](uint64_t, uint64_t, void*) { throw FormatError("source broke"); };
  EXPECT_THROW(write_safetensors(path, {fails}, {}), FormatError);
  EXPECT_EQ(read_file(path, 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THROW(write_safetensors(folder / "no/such/folder.safetensors", {w}, {}), FileError);
}

TEST(Safetensors, AFileThatGrowsGivesWhatItsHeaderSaid) {
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kMap}) {
    const TemporaryFolder folder;
    const auto path = folder / "grows.safetensors";
    write_random(path, {{"v", {300}}, {"w", {5000}}});
    std::vector<char> want(5000 * 4), got(want.size(), 'x');
    const auto still = SafetensorsFile::open(path, access);
    still->read(*still->find("w"), 0, want.size(), want.data());
    const auto file = SafetensorsFile::open(path, access);
    std::ofstream(path, std::ios::binary | std::ios::app) << std::string(1 << 20, 'z');
    file->read(*file->find("w"), 0, got.size(), got.data());
    EXPECT_EQ(got, want);
    // Whoever opens it now sees a file that is longer than its header says.
    EXPECT_THROW(SafetensorsFile::open(path, access), FormatError);
  }
}

TEST(Safetensors, AFileThatShrinksIsAnErrorNotACrash) {
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kMap}) {
    const TemporaryFolder folder;
    const auto path = folder / "shrinks.safetensors";
    write_random(path, {{"w", {1 << 20}}});
    const auto file = SafetensorsFile::open(path, access);
    std::filesystem::resize_file(path, 8192);
    std::vector<char> bytes(4u << 20);
    EXPECT_THAT(error_of<FormatError>([&] { file->read(file->entries()[0], 0, bytes.size(), bytes.data()); }),
                HasSubstr("became shorter"));
    // The guard is gone again: a second read fails in the same way.
    EXPECT_THROW(file->read(file->entries()[0], 0, bytes.size(), bytes.data()), FormatError);
  }
}

}  // namespace
}  // namespace rocm_sd
