#include "gui/history/frames.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::gui::history {
namespace {

absl::Status CheckRow(const Statement& row, const char* what) {
  const std::int64_t at_ms = row.Int(0);
  if (row.Int(2) == RowSum(at_ms, row.Bytes(1))) return absl::OkStatus();
  return Damaged(absl::StrCat("the ", what, " of ", TimeText(at_ms), " has a wrong checksum"));
}

}  // namespace

absl::StatusOr<FrameReader> FrameReader::Create(const File& file) {
  FrameReader reader;
  ONEPIECE_ASSIGN_OR_RETURN(
      reader.before_, file.Prepare("SELECT t_ms, numbers, crc FROM frame WHERE t_ms <= ?1 ORDER BY "
                                   "t_ms DESC LIMIT 1"));
  ONEPIECE_ASSIGN_OR_RETURN(
      reader.scan_, file.Prepare("SELECT t_ms, numbers, crc FROM frame WHERE t_ms BETWEEN ?1 AND "
                                 "?2 ORDER BY t_ms"));
  ONEPIECE_ASSIGN_OR_RETURN(
      reader.layout_, file.Prepare("SELECT t_ms, series, crc FROM layout WHERE t_ms <= ?1 ORDER BY "
                                   "t_ms DESC LIMIT 1"));
  ONEPIECE_ASSIGN_OR_RETURN(reader.next_layout_,
                            file.Prepare("SELECT min(t_ms) FROM layout WHERE t_ms > ?1"));
  ONEPIECE_ASSIGN_OR_RETURN(reader.reference_,
                            file.Prepare("SELECT t_ms, numbers, crc FROM frame WHERE t_ms = ?1"));
  return reader;
}

absl::Status FrameReader::UseLayoutOf(std::int64_t at_ms) {
  if (layout_ms_ >= 0 && at_ms >= layout_ms_ && at_ms < until_ms_) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, layout_.Start(at_ms).Next());
  if (!found)
    return Damaged(absl::StrCat("nothing says what the tick of ", TimeText(at_ms), " is"));
  ONEPIECE_RETURN_IF_ERROR(CheckRow(layout_, "list of series"));
  const std::int64_t start = layout_.Int(0);
  if (start != layout_ms_) {
    layout_ms_ = -1;
    ONEPIECE_ASSIGN_OR_RETURN(Layout columns, codec_->UnpackLayout(layout_.Bytes(1)));
    ONEPIECE_ASSIGN_OR_RETURN(const bool there, reference_.Start(start).Next());
    if (!there) return Damaged(absl::StrCat("the tick of ", TimeText(start), " is not there"));
    ONEPIECE_RETURN_IF_ERROR(CheckRow(reference_, "tick"));
    ONEPIECE_ASSIGN_OR_RETURN(first_, codec_->UnpackFrame(reference_.Bytes(1), columns.size(), {}));
    reference_.Stop();
    columns_ = std::make_shared<const Layout>(std::move(columns));
  }
  layout_.Stop();
  ONEPIECE_ASSIGN_OR_RETURN(const bool next, next_layout_.Start(start).Next());
  // Without a next one, one may come at any time: of a tick that is not written yet.
  until_ms_ = next && !next_layout_.IsNull(0) ? next_layout_.Int(0) : at_ms + 1;
  next_layout_.Stop();
  layout_ms_ = start;
  return absl::OkStatus();
}

absl::StatusOr<Frame> FrameReader::Read(const Statement& row) {
  ONEPIECE_RETURN_IF_ERROR(CheckRow(row, "tick"));
  Frame frame;
  frame.at_ms = row.Int(0);
  ONEPIECE_RETURN_IF_ERROR(UseLayoutOf(frame.at_ms));
  frame.layout = columns_;
  if (frame.at_ms == layout_ms_) {
    frame.values = first_;
    return frame;
  }
  ONEPIECE_ASSIGN_OR_RETURN(frame.values,
                            codec_->UnpackFrame(row.Bytes(1), columns_->size(), first_));
  return frame;
}

absl::StatusOr<std::optional<Frame>> FrameReader::AtOrBefore(std::int64_t at_ms) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, before_.Start(at_ms).Next());
  if (!found) return std::optional<Frame>();
  auto frame = Read(before_);
  before_.Stop();
  if (!frame.ok()) return frame.status();
  return std::optional<Frame>(*std::move(frame));
}

absl::Status FrameReader::Scan(std::int64_t from_ms, std::int64_t to_ms,
                               absl::FunctionRef<void(const Frame& frame)> take) {
  scan_.Start(from_ms, to_ms);
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool found, scan_.Next());
    if (!found) return absl::OkStatus();
    const auto frame = Read(scan_);
    if (!frame.ok()) {
      scan_.Stop();
      return frame.status();
    }
    take(*frame);
  }
}

}  // namespace onepiece::gui::history
