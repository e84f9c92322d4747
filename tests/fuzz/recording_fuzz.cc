// Gives any bytes to the reader of recordings: to the codec, as they come and compressed; as rows
// whose checksums are right; and as a whole file.
//
// The first byte says which of the three. Rows are a program: a byte says which row comes, then
// come its numbers and its blob.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/history/codec.h"
#include "cluster/history/file.h"
#include "cluster/history/frames.h"
#include "cluster/history/recording.h"
#include "google/protobuf/stubs/logging.h"

namespace onepiece::history {
namespace {

class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::string_view Take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  unsigned Byte() { return empty() ? 0 : static_cast<unsigned char>(Take(1)[0]); }
  /// A small number most of the time, and sometimes any number.
  std::int64_t Number() {
    const unsigned kind = Byte();
    if (kind < 200) return kind;
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | Byte();
    return static_cast<std::int64_t>(value);
  }
  std::string_view Rest() { return Take(rest_.size()); }

 private:
  std::string_view rest_;
};

void Decode(Codec& codec, std::string_view packed) {
  const std::vector<double> reference(3, 1.0);
  (void)codec.UnpackFrame(packed, 3, reference);
  if (const auto layout = codec.UnpackLayout(packed); layout.ok()) {
    ONEPIECE_CHECK(std::ranges::is_sorted(*layout) && layout->size() <= Codec::kMaxSeries);
    const auto again = codec.UnpackLayout(codec.PackLayout(*layout));
    ONEPIECE_CHECK(again.ok() && *again == *layout);
  }
  if (const auto cells = codec.UnpackRollup(packed); cells.ok()) {
    ONEPIECE_CHECK(cells->size() <= Codec::kMaxSeries);
    const auto again = codec.UnpackRollup(codec.PackRollup(*cells));
    ONEPIECE_CHECK(again.ok() && again->size() == cells->size());
  }
}

/// A recording in a folder of its own, which goes with the process.
struct Made {
  std::string folder = std::filesystem::temp_directory_path() / "onepiece_fuzz_XXXXXX";
  std::unique_ptr<File> file;

  Made() {
    ONEPIECE_CHECK(mkdtemp(folder.data()) != nullptr);
    auto opened = File::OpenToWrite(folder + "/recording");
    ONEPIECE_CHECK(opened.ok());
    file = *std::move(opened);
    ONEPIECE_CHECK(file->Execute("PRAGMA synchronous=OFF").ok());
  }
  ~Made() {
    file.reset();
    std::filesystem::remove_all(folder);
  }
};

void WriteRows(const File& file, Codec& codec, Input& input) {
  auto layout = *file.Prepare("INSERT OR REPLACE INTO layout VALUES (?1, ?2, ?3)");
  auto frame = *file.Prepare("INSERT OR REPLACE INTO frame VALUES (?1, ?2, ?3, ?4, ?5)");
  std::uint32_t layout_sum = 0;
  while (!input.empty()) {
    const unsigned kind = input.Byte();
    const std::int64_t at_ms = input.Number();
    const auto raw = input.Take(input.Byte());
    const std::string blob = kind < 230 ? codec.Compress(raw) : std::string(raw);
    if (kind % 2 == 0) {
      layout_sum = RowSum(at_ms, blob);
      (void)layout.Run(at_ms, Blob{blob}, std::int64_t{layout_sum});
    } else {
      const FramePlace place{.at_ms = at_ms, .tick = input.Number(), .layout_sum = layout_sum};
      (void)frame.Run(at_ms, place.tick, std::int64_t{0}, Blob{blob},
                      std::int64_t{FrameSum(place, blob)});
    }
  }
}

void ReadRows(const File& file) {
  auto reader = FrameReader::Create(file);
  ONEPIECE_CHECK(reader.ok());
  const auto look = [](const Frame& frame) {
    ONEPIECE_CHECK(frame.layout != nullptr && frame.values.size() == frame.layout->size());
  };
  (void)reader->Scan(INT64_MIN, INT64_MAX, look);
  for (const std::int64_t at_ms : {INT64_MIN, std::int64_t{-1}, std::int64_t{50}, INT64_MAX}) {
    if (const auto frame = reader->AtOrBefore(at_ms); frame.ok() && frame->has_value())
      look(**frame);
  }
}

void Rows(Codec& codec, Input input) {
  static const Made made;
  const File& file = *made.file;
  ONEPIECE_CHECK(file.Execute("BEGIN").ok());
  WriteRows(file, codec, input);
  ReadRows(file);
  ONEPIECE_CHECK(file.Execute("ROLLBACK").ok());
}

void WholeFile(std::string_view bytes) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  ONEPIECE_CHECK(fd >= 0);
  ONEPIECE_CHECK(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (auto recording = Recording::Open(path); recording.ok()) {
    const Interval all{.from_ms = INT64_MIN, .to_ms = INT64_MAX};
    const auto info = (*recording)->Info();
    if (info.ok()) (void)(*recording)->At(info->interval.to_ms);
    (void)(*recording)->Gaps(all);
    (void)(*recording)->Marks(all);
    const auto series = (*recording)->ListSeries();
    if (series.ok() && !series->empty() && info.ok())
      (void)(*recording)->Series(series->front().name, info->interval, 10);
  }
  close(fd);
}

}  // namespace
}  // namespace onepiece::history

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::history;
  static const google::protobuf::LogSilencer quiet;  // It logs every text that is not UTF-8.
  static Codec codec;
  Input input({reinterpret_cast<const char*>(data), size});
  const unsigned kind = input.Byte() % 4;
  if (kind == 0) Decode(codec, input.Rest());
  if (kind == 1) Decode(codec, codec.Compress(input.Rest()));
  if (kind == 2) Rows(codec, input);
  if (kind == 3) WholeFile(input.Rest());
  return 0;
}
