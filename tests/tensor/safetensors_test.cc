#include "stages/tensor/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>

#include "cluster/base/status.h"
#include "tests/tensor/safetensors_bytes.h"
#include "tests/test_main.h"

namespace onepiece::tensor {
namespace {

constexpr char kGoodHeader[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
    R"("none":{"dtype":"I64","shape":[0,7],"data_offsets":[12,12]}})";

std::string One(const std::string& fields) { return "{\"t\":{" + fields + "}}"; }

void AddBadHeaders() {
  const auto row = [](const char* name, const std::string& header, int data, const char* says) {
    QTest::newRow(name) << QByteArray::fromStdString(
                               SafetensorsBytes(header, std::string(data, 'x')))
                        << says;
  };
  row("overlap",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
      R"("t":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
      7, "\"t\": its data overlap");
  row("same range twice",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
      R"("t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
      4, "overlap");
  row("hole",
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
      R"("t":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
      9, "\"t\": there is a hole");
  row("bytes left over", One(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 5,
      "belong to no tensor");
  row("past the end", One(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 3,
      "\"t\": its data run past");
  row("offset near 2^64",
      One(R"("dtype":"U8","shape":[4],"data_offsets":[18446744073709551611,18446744073709551615])"),
      4, "run past");
  row("offset above 2^64",
      One(R"("dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551616])"), 4, "\"t\":");
  row("backwards", One(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), 4, "backwards");
  row("shape overflows",
      One(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0, "overflows");
  row("overflow behind a zero",
      One(R"("dtype":"F32","shape":[0,9223372036854775807,9],"data_offsets":[0,0])"), 0,
      "overflows");
  row("extent above 2^63",
      One(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0])"), 0, "too large");
  row("negative extent", One(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), 4, "negative");
  row("fraction", One(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])"), 4, "not an integer");
  row("size does not fit shape", One(R"("dtype":"F32","shape":[4],"data_offsets":[0,4])"), 4,
      "need 16");
  row("unknown dtype", One(R"("dtype":"F31","shape":[4],"data_offsets":[0,4])"), 4,
      "unknown dtype \"F31\"");
  row("dtype is a number", One(R"("dtype":4,"shape":[4],"data_offsets":[0,4])"), 4,
      "a number where none belongs");
  row("one offset", One(R"("dtype":"U8","shape":[4],"data_offsets":[4])"), 4, "two numbers");
  row("three offsets", One(R"("dtype":"U8","shape":[4],"data_offsets":[0,2,4])"), 4, "two numbers");
  row("no shape", One(R"("dtype":"U8","data_offsets":[0,4])"), 4, "all needed");
  row("unknown field", One(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1)"), 4,
      "unknown field");
  row("duplicate field", One(R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])"), 4,
      "duplicate field");
  row("duplicate name",
      R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
      R"("t":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
      4, "duplicate name \"t\"");
  row("duplicate metadata", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "duplicate key");
  row("metadata not text", R"({"__metadata__":{"a":1}})", 0, "a number where none belongs");
  row("metadata nested", R"({"__metadata__":{"a":{"b":"c"}}})", 0, "an object where none belongs");
  row("17 dimensions",
      One(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1,
      "too many dimensions");
  row("nested shape", One(R"("dtype":"U8","shape":[[4]],"data_offsets":[0,4])"), 4,
      "an array where none belongs");
  row("deep nesting", "{\"t\":" + std::string(1'000'000, '['), 0, "an array where none belongs");
  row("null tensor", R"({"t":null})", 0, "null");
  row("not JSON", "{\"t\":}", 0, "not valid JSON");
  row("not UTF-8", "{\"\xff\":{}}", 0, "not valid JSON");
  row("text after the object", R"({} {})", 0, "not valid JSON");
  row("an array", "[]", 0, "does not begin with '{'");
  row("no header", "", 0, "does not begin with '{'");
}

}  // namespace

class SafetensorsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  /// Qt's handler would hold up Guard_LeavesOtherFaultsAlone with a debugger.
  void initTestCase() { std::signal(SIGBUS, SIG_DFL); }

  void Parse_ReadsAGoodFile() {
    const auto index = ParseSafetensors(
        AsBytes(SafetensorsBytes(std::string(kGoodHeader) + "   ", std::string(12, 'x'))), "f");
    QVERIFY2(index.ok(), base::Message(index.status()).c_str());
    QCOMPARE(index->tensors.size(), std::size_t{3});
    QCOMPARE(index->tensors[0].name, std::string("a"));
    QCOMPARE(index->metadata.at("format"), std::string("pt"));
    const TensorEntry* b = index->Find("b");
    QVERIFY(b != nullptr && b->type == ElementType::kF32 && b->offset == 4 && b->bytes == 8);
    QCOMPARE(b->shape, (std::vector<std::int64_t>{2, 1}));
    QVERIFY(index->Find("c") == nullptr);
  }

  void Parse_ReadsAScalar() {
    const auto index = ParseSafetensors(
        AsBytes(SafetensorsBytes(One(R"("dtype":"F64","shape":[],"data_offsets":[0,8])"),
                                 std::string(8, 'x'))),
        "f");
    QVERIFY2(index.ok(), base::Message(index.status()).c_str());
    QVERIFY(index->tensors[0].shape.empty());
  }

  void Parse_RefusesAHostileHeader_data() {
    QTest::addColumn<QByteArray>("file");
    QTest::addColumn<QString>("says");
    AddBadHeaders();
    QTest::newRow("7 bytes") << QByteArray(7, '\0') << "shorter than";
    QTest::newRow("header past the end")
        << QByteArray("\x40\0\0\0\0\0\0\0{}", 10) << "past the end";
    QTest::newRow("huge header") << QByteArray("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)
                                 << "more than 100 MB";
  }
  void Parse_RefusesAHostileHeader() {
    QFETCH(QByteArray, file);
    QFETCH(QString, says);
    const auto index = ParseSafetensors(AsBytes(file.toStdString()), "model.safetensors");
    QVERIFY(!index.ok());
    QCOMPARE(index.status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(base::GetReason(index.status()).reason, std::string("BAD_SAFETENSORS"));
    QCOMPARE(base::GetReason(index.status()).metadata.at("file"), std::string("model.safetensors"));
    const std::string message = base::Message(index.status());
    QVERIFY2(message.starts_with("model.safetensors: "), message.c_str());
    QVERIFY2(QString::fromStdString(message).contains(says), message.c_str());
  }

  void Parse_RefusesEveryTruncation() {
    const std::string good = SafetensorsBytes(kGoodHeader, std::string(12, 'x'));
    for (std::size_t length = 0; length < good.size(); ++length) {
      QVERIFY(!ParseSafetensors(AsBytes(good.substr(0, length)), "f").ok());
    }
    QVERIFY(ParseSafetensors(AsBytes(good), "f").ok());
  }

  /// Checks that an accepted header describes exactly the file's bytes, whatever the damage was.
  void Parse_KeepsItsInvariantOnDamagedFiles() {
    const std::string good = SafetensorsBytes(kGoodHeader, std::string(12, 'x'));
    const auto seed = qEnvironmentVariableIsSet("ONEPIECE_SEED")
                          ? qEnvironmentVariableIntValue("ONEPIECE_SEED")
                          : static_cast<int>(std::random_device{}());
    qInfo("ONEPIECE_SEED=%d", seed);
    std::mt19937 random(static_cast<unsigned>(seed));
    for (int round = 0; round < 20000; ++round) {
      std::string file = good;
      for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
        file[random() % file.size()] = static_cast<char>(random());
      const auto index = ParseSafetensors(AsBytes(file), "f");
      if (!index.ok()) continue;
      std::uint64_t bytes = 0;
      for (const TensorEntry& entry : index->tensors) bytes += entry.bytes;
      QCOMPARE(index->data_offset + bytes, file.size());
    }
  }

  void Open_MapsAFileAndGivesItsBytes() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("m.safetensors").toStdString();
    WriteFile(path, SafetensorsBytes(kGoodHeader, "0123456789ab"));
    const auto file = SafetensorsFile::Open(path);
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    const auto bytes = (*file)->Data(*(*file)->index().Find("b"));
    QCOMPARE(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
             std::string("456789ab"));
  }

  /// Large enough for pages that a truncation takes away.
  void Data_OfATruncatedFile_ReadsZerosAndIsNoticed() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("m.safetensors").toStdString();
    const std::string header =
        R"({"a": {"dtype": "U8", "shape": [100000], "data_offsets": [0, 100000]}})";
    WriteFile(path, SafetensorsBytes(header, std::string(100000, 'x')));
    const auto file = SafetensorsFile::Open(path);
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    const auto other = SafetensorsFile::Open(path);
    QVERIFY(other.ok());
    const auto bytes = (*file)->Data((*file)->index().tensors.front());
    QCOMPARE((*file)->CheckUnchanged(), absl::OkStatus());
    std::filesystem::resize_file(path, 20000);
    QCOMPARE(bytes[50], std::byte{'x'});
    QCOMPARE(bytes[99999], std::byte{0});
    QCOMPARE(bytes[50000], std::byte{0});
    QCOMPARE(base::GetReason((*file)->CheckUnchanged()).reason, std::string("MODEL_CHANGED"));
    // Even if somebody puts it back.
    std::filesystem::remove(path);
    WriteFile(path, SafetensorsBytes(header, std::string(100000, 'x')));
    QCOMPARE(base::GetReason((*file)->CheckUnchanged()).reason, std::string("MODEL_CHANGED"));
    QCOMPARE((*other)->CheckUnchanged(), absl::OkStatus());
  }

  void CheckFolder_NoticesWhatIsOverwritten_NotWhatIsReplaced() {
    const QTemporaryDir dir;
    const std::string folder = dir.path().toStdString(), path = folder + "/m.safetensors";
    WriteFile(path, SafetensorsBytes(kGoodHeader, "0123456789ab"));
    const auto file = SafetensorsFile::Open(path);
    QVERIFY(file.ok());
    QCOMPARE(SafetensorsFile::CheckFolder(folder), absl::OkStatus());
    WriteFile(folder + "/new", SafetensorsBytes(kGoodHeader, "ba9876543210"));
    std::filesystem::rename(folder + "/new", path);
    QCOMPARE(SafetensorsFile::CheckFolder(folder), absl::OkStatus());
    const auto newer = SafetensorsFile::Open(path);
    QVERIFY(newer.ok());
    WriteFile(path, SafetensorsBytes(kGoodHeader, "0123456789ab"));
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    QCOMPARE(base::GetReason(SafetensorsFile::CheckFolder(folder)).reason,
             std::string("MODEL_CHANGED"));
    QCOMPARE((*file)->CheckUnchanged(), absl::OkStatus());
    QCOMPARE(SafetensorsFile::CheckFolder(folder + "/other"), absl::OkStatus());
  }

  /// A fault elsewhere still ends the process.
  void Guard_LeavesOtherFaultsAlone() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("m.safetensors").toStdString();
    WriteFile(path, SafetensorsBytes(kGoodHeader, "0123456789ab"));
    QVERIFY(SafetensorsFile::Open(path).ok());
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open(path.c_str(), O_RDONLY);
      void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
      std::filesystem::resize_file(path, 0);
      ::_exit(*static_cast<volatile char*>(page));
    }
    int status = 0;
    QCOMPARE(::waitpid(child, &status, 0), child);
    QVERIFY(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
  }

  // It may lead to any file of the user who runs the program.
  void Open_FollowsNoLink() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("a.safetensors").toStdString();
    const std::string link = dir.filePath("b.safetensors").toStdString();
    WriteFile(path, SafetensorsBytes(kGoodHeader, "0123456789ab"));
    std::filesystem::create_symlink(path, link);
    QVERIFY(SafetensorsFile::Open(path).ok());
    const auto refused = SafetensorsFile::Open(link);
    QCOMPARE(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    QVERIFY(std::string(refused.status().message()).find("symbolic link") != std::string::npos);
  }

  void Open_RefusesWhatIsNoFile() {
    const QTemporaryDir dir;
    QCOMPARE(SafetensorsFile::Open(dir.filePath("absent").toStdString()).status().code(),
             absl::StatusCode::kNotFound);
    QCOMPARE(SafetensorsFile::Open(dir.path().toStdString()).status().code(),
             absl::StatusCode::kInvalidArgument);
    const std::string empty = dir.filePath("empty").toStdString();
    WriteFile(empty, "");
    QCOMPARE(SafetensorsFile::Open(empty).status().code(), absl::StatusCode::kInvalidArgument);
  }
};

}  // namespace onepiece::tensor

ONEPIECE_TEST(onepiece::tensor::SafetensorsTest)
#include "safetensors_test.moc"
