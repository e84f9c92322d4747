#include "nodemanager/service/audit_file.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/telemetry/audit_document.h"
#include "nodemanager/service/controller.h"

namespace onepiece::nodemanager {
namespace {

using Json = nlohmann::ordered_json;

/// More than the longest line.
constexpr std::streamoff kTailBytes = 256 << 10;
constexpr auto kPause = std::chrono::seconds(1);

absl::Status CannotWrite(const std::string& why) {
  return base::MakeError(absl::StatusCode::kUnavailable, "CANNOT_WRITE", "the audit file: " + why);
}

std::string MissingLine(std::uint64_t after, std::uint64_t before) {
  const Json line = {{"missing", true}, {"after_revision", after}, {"before_revision", before}};
  return line.dump();
}

/// Cuts off what follows the last line end.
absl::Status CutHalfLine(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::OkStatus();  // There is none yet.
  std::streamoff size = file.tellg();
  char last = '\0';
  for (; size > 0; --size) {
    file.seekg(size - 1);
    if (file.get(last) && last == '\n') break;
  }
  if (::truncate(path.c_str(), size) != 0) return CannotWrite(path + ": " + std::strerror(errno));
  return absl::OkStatus();
}

/// The whole lines at the end of the file that are entries, in order.
std::vector<std::uint64_t> LastRevisions(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<std::uint64_t> revisions;
  if (!file) return revisions;
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::string line;
  if (size > kTailBytes) std::getline(file, line);  // Perhaps a part of one.
  while (std::getline(file, line)) {
    const Json entry = Json::parse(line, nullptr, false);
    if (entry.is_object() && entry.contains("revision") && entry["revision"].is_number_unsigned())
      revisions.push_back(entry["revision"].get<std::uint64_t>());
  }
  return revisions;
}

std::string OlderPath(const std::string& path) {
  return spdlog::sinks::rotating_file_sink_mt::calc_filename(path, 1);
}

}  // namespace

absl::StatusOr<AuditFile> AuditFile::Open(AuditFileOptions options) {
  ONEPIECE_RETURN_IF_ERROR(CutHalfLine(options.path));
  // One command's entries may stand at the end of one file and at the beginning of the next.
  std::vector<std::uint64_t> revisions = LastRevisions(OlderPath(options.path));
  for (const std::uint64_t revision : LastRevisions(options.path)) revisions.push_back(revision);
  std::shared_ptr<spdlog::sinks::sink> sink;
  try {
    sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.path, options.file_bytes,
                                                                  options.files - 1);
  } catch (const spdlog::spdlog_ex& error) {
    return CannotWrite(error.what());
  }
  sink->set_pattern("%v");
  AuditFile file(std::move(sink));
  for (const std::uint64_t revision : revisions) file.Note(revision);
  return file;
}

void AuditFile::Note(std::uint64_t revision) {
  count_ = revision == revision_ ? count_ + 1 : 1;
  revision_ = revision;
}

AuditFile::News AuditFile::NewOf(const Entries& audit) const {
  // Entries of the last revision come first among those that are not older.
  auto first = audit.end();
  while (first != audit.begin() && std::prev(first)->revision() >= revision_) --first;
  for (std::size_t i = 0; i < count_ && first != audit.end() && first->revision() == revision_; ++i)
    ++first;
  // The state forgets the oldest when it has so many.
  return {.entries = Entries(first, audit.end()),
          .whole = audit.size() < StateMachine::kMaxAudit || audit.front().revision() <= revision_};
}

absl::Status AuditFile::Append(const News& news) {
  if (news.entries.empty()) return absl::OkStatus();
  const auto write = [&](const std::string& line) {
    sink_->log(spdlog::details::log_msg("", spdlog::level::info, line));
  };
  try {
    if (!news.whole) write(MissingLine(revision_, news.entries.front().revision()));
    for (const v1::AuditEntry& entry : news.entries) {
      write(telemetry::AuditDocument(entry).dump(-1, ' ', false, Json::error_handler_t::replace));
      Note(entry.revision());
    }
    sink_->flush();
  } catch (const spdlog::spdlog_ex& error) {
    return CannotWrite(error.what());
  }
  return absl::OkStatus();
}

std::jthread FollowAudit(const Controller& controller, AuditFile file, base::Clock& clock) {
  return std::jthread(
      [&controller, &clock, its_file = std::move(file)](const std::stop_token& stop) mutable {
        bool failing = false;
        while (!stop.stop_requested()) {
          const std::uint64_t version = controller.version();
          AuditFile::News news;
          controller.Read([&](const StateMachine& state) { news = its_file.NewOf(state.audit()); });
          const absl::Status status = its_file.Append(news);
          if (!status.ok() && !failing) spdlog::warn("op=audit_file {}", base::Message(status));
          failing = !status.ok();
          if (failing) {
            clock.Pause(stop, kPause);
          } else {
            controller.WaitForChange(version, stop, clock, clock.Now() + kPause);
          }
        }
      });
}

}  // namespace onepiece::nodemanager
