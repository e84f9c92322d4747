// Gives any bytes to what the journal reads of a row, as they come and with the checksum corrected.
// Then it ages the record, whatever stamp and time_left it has.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cluster/base/check.h"
#include "cluster/database/data_folder.h"
#include "cluster/database/journal.h"
#include "cluster/job/job_record.h"
#include "google/protobuf/stubs/logging.h"

namespace onepiece::database {
namespace {

constexpr std::size_t kKeyBytes = 16;

void Read(const JournalRow& row) {
  auto record = ReadJournalRow(row);
  if (!record.has_value()) return;
  ONEPIECE_CHECK(base::Uid::Parse(record->job().uid()).has_value());
  const bool had_time = record->has_time_left();
  const base::Duration before = job::FromProto(record->time_left());
  // Its own run of the operating system and another one; 2^59 ns are 18 years.
  for (const std::int64_t now_ns :
       {std::int64_t{0}, std::int64_t{1} << 50, std::int64_t{1} << 59}) {
    for (const std::string& boot : {record->stamp().boot_id(), std::string("another")}) {
      v1::JobRecord aged = *record;
      TakeElapsedTime(aged, boot, base::MonotonicTime(base::Duration(now_ns)));
      ONEPIECE_CHECK(!aged.has_stamp() && aged.has_time_left() == had_time);
      ONEPIECE_CHECK(job::FromProto(aged.time_left()) <= std::max(before, base::Duration::zero()));
    }
  }
}

}  // namespace
}  // namespace onepiece::database

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::database;
  static const google::protobuf::LogSilencer quiet;  // It logs every text that is not UTF-8.
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  if (size < kKeyBytes) return 0;
  JournalRow row{.key = all.substr(0, kKeyBytes), .bytes = all.substr(kKeyBytes)};
  Read(row);
  row.checksum = RowChecksum(row.key, row.bytes);
  Read(row);
  return 0;
}
