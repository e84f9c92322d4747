#include "cluster/history/frames.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/history/recording.h"

namespace onepiece::history {
namespace {

constexpr const char* kColumns = "SELECT t_ms, tick, shape_crc, numbers, crc FROM frame ";

// As kMaxTimeMs.
constexpr std::int64_t kMaxTick = std::int64_t{1} << 50;

absl::Status WrongSum(const char* what, std::int64_t at_ms) {
  return Damaged(absl::StrCat("the ", what, " of ", TimeText(at_ms), " has a wrong checksum"));
}

absl::Status CheckFrame(const Statement& row, std::uint32_t layout_sum) {
  const FramePlace place{row.Int(0), row.Int(1), layout_sum,
                         static_cast<std::uint32_t>(row.Int(2))};
  return row.Int(4) == FrameSum(place, row.Bytes(3)) ? absl::OkStatus()
                                                     : WrongSum("tick", place.at_ms);
}

absl::Status LostAfter(std::int64_t at_ms) {
  return Damaged(absl::StrCat("what was recorded after ", TimeText(at_ms), " is not there"));
}

}  // namespace

absl::StatusOr<FrameReader> FrameReader::Create(const File& file) {
  FrameReader reader;
  const std::string columns = kColumns;
  const std::pair<Statement*, std::string> all[] = {
      {&reader.before_, columns + "WHERE t_ms <= ?1 ORDER BY t_ms DESC LIMIT 1"},
      {&reader.after_, "SELECT t_ms, tick FROM frame WHERE t_ms > ?1 ORDER BY t_ms LIMIT 1"},
      {&reader.scan_, columns + "WHERE t_ms BETWEEN ?1 AND ?2 ORDER BY t_ms"},
      {&reader.layout_,
       "SELECT t_ms, series, crc FROM layout WHERE t_ms <= ?1 ORDER BY t_ms DESC LIMIT 1"},
      {&reader.next_layout_, "SELECT min(t_ms) FROM layout WHERE t_ms > ?1"},
      {&reader.reference_, columns + "WHERE t_ms = ?1"}};
  for (const auto& [statement, sql] : all) {
    ONEPIECE_ASSIGN_OR_RETURN(*statement, file.Prepare(sql));
  }
  return reader;
}

absl::Status FrameReader::UseLayoutOf(std::int64_t at_ms) {
  if (layout_ms_ >= 0 && at_ms >= layout_ms_ && at_ms < until_ms_) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, layout_.Start(at_ms).Next());
  if (!found)
    return Damaged(absl::StrCat("nothing says what the tick of ", TimeText(at_ms), " is"));
  const std::int64_t start = layout_.Int(0);
  const auto sum = static_cast<std::uint32_t>(layout_.Int(2));
  if (sum != RowSum(start, layout_.Bytes(1))) return WrongSum("list of series", start);
  if (start != layout_ms_) {
    // A step below may fail after columns_ and first_ have changed. The next call must not take
    // them for those of the layout before.
    layout_ms_ = -1;
    ONEPIECE_ASSIGN_OR_RETURN(Layout columns, codec_->UnpackLayout(layout_.Bytes(1)));
    ONEPIECE_ASSIGN_OR_RETURN(const bool there, reference_.Start(start).Next());
    if (!there) return Damaged(absl::StrCat("the tick of ", TimeText(start), " is not there"));
    ONEPIECE_RETURN_IF_ERROR(CheckFrame(reference_, sum));
    ONEPIECE_ASSIGN_OR_RETURN(first_, codec_->UnpackFrame(reference_.Bytes(3), columns.size(), {}));
    reference_.Stop();
    columns_ = std::make_shared<const Layout>(std::move(columns));
  }
  layout_.Stop();
  ONEPIECE_ASSIGN_OR_RETURN(const bool next, next_layout_.Start(start).Next());
  // Without a next layout, the recorder may write one with any later tick. The layout then holds
  // only up to this tick.
  until_ms_ = next && !next_layout_.IsNull(0) ? next_layout_.Int(0) : at_ms + 1;
  next_layout_.Stop();
  layout_ms_ = start;
  layout_sum_ = sum;
  return absl::OkStatus();
}

absl::StatusOr<Frame> FrameReader::Read(const Statement& row) {
  Frame frame;
  frame.at_ms = row.Int(0);
  frame.tick = row.Int(1);
  frame.shape_sum = static_cast<std::uint32_t>(row.Int(2));
  if (frame.at_ms < 0 || frame.at_ms > kMaxTimeMs || frame.tick < 0 || frame.tick > kMaxTick)
    return Damaged(absl::StrCat("a tick at ", frame.at_ms, " ms"));
  ONEPIECE_RETURN_IF_ERROR(UseLayoutOf(frame.at_ms));
  ONEPIECE_RETURN_IF_ERROR(CheckFrame(row, layout_sum_));
  frame.layout = columns_;
  if (frame.at_ms == layout_ms_) {
    frame.values = first_;
    return frame;
  }
  ONEPIECE_ASSIGN_OR_RETURN(frame.values,
                            codec_->UnpackFrame(row.Bytes(3), columns_->size(), first_));
  return frame;
}

absl::StatusOr<std::optional<Frame>> FrameReader::AtOrBefore(std::int64_t at_ms) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, before_.Start(at_ms).Next());
  if (!found) return std::optional<Frame>();
  auto frame = Read(before_);
  before_.Stop();
  if (!frame.ok()) return frame.status();
  if (at_ms > frame->at_ms) ONEPIECE_RETURN_IF_ERROR(CheckNoneAfter(*frame));
  return std::optional<Frame>(*std::move(frame));
}

absl::Status FrameReader::CheckNoneAfter(const Frame& frame) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool more, after_.Start(frame.at_ms).Next());
  const bool lost =
      more && (after_.Int(1) != frame.tick + 1 || after_.Int(0) - frame.at_ms > kHoleMs);
  after_.Stop();
  return lost ? LostAfter(frame.at_ms) : absl::OkStatus();
}

absl::Status FrameReader::Scan(std::int64_t from_ms, std::int64_t to_ms,
                               absl::FunctionRef<void(const Frame& frame)> take) {
  scan_.Start(from_ms, to_ms);
  std::int64_t before_tick = -1, before_ms = 0;
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, scan_.Next());
    if (!found) return absl::OkStatus();
    const auto frame = Read(scan_);
    absl::Status status = frame.status();
    if (status.ok() && before_tick >= 0 && frame->tick != before_tick + 1)
      status = LostAfter(before_ms);
    if (!status.ok()) {
      scan_.Stop();
      return status;
    }
    before_tick = frame->tick;
    before_ms = frame->at_ms;
    take(*frame);
  }
}

}  // namespace onepiece::history
