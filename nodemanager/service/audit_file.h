// The audit log as files: the replicated state has the last 1,000 entries, and each NodeManager
// keeps those that it has seen on its own disk, for as long as the files' bound allows. Private to
// this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "onepiece/v1/elasticity.pb.h"

namespace spdlog::sinks {
class sink;
}

namespace onepiece::nodemanager {

class Controller;

struct AuditFileOptions {
  std::string path;  ///< FOLDER/audit.jsonl; older files are audit.1.jsonl and so on.
  std::size_t file_bytes = std::size_t{16} << 20;
  std::size_t files = 16;
};

/// Appends entries to the file, one JSON object a line, as `onepiece audit --json` names the
/// fields. Where entries passed while this NodeManager was away for longer than the state
/// remembers, a line
/// {"missing": true, "after_revision": …, "before_revision": …} stands in their place.
///
/// Threading: thread-confined.
class AuditFile {
 public:
  using Entries = std::deque<v1::AuditEntry>;

  /// Goes on after the last whole line of the file. What a crash has left half written is cut off.
  ///
  /// Errors: UNAVAILABLE (CANNOT_WRITE).
  static absl::StatusOr<AuditFile> Open(AuditFileOptions options);

  /// Entries that the file does not have.
  struct News {
    Entries entries;
    bool whole = true;  ///< Nothing is missing between the file and them.
  };
  /// `audit` is in order, and may have forgotten its oldest.
  [[nodiscard]] News NewOf(const Entries& audit) const;
  /// Appends what NewOf() returned.
  ///
  /// Blocking: writes to the disk, without syncing it.
  /// Errors: UNAVAILABLE (CANNOT_WRITE). The entries that are not in the file come with the next
  /// NewOf() again.
  absl::Status Append(const News& news);

 private:
  explicit AuditFile(std::shared_ptr<spdlog::sinks::sink> sink) : sink_(std::move(sink)) {}
  void Note(std::uint64_t revision);

  std::shared_ptr<spdlog::sinks::sink> sink_;
  // The last entry's revision, and how many entries of that revision the file has. One command may
  // make several.
  std::uint64_t revision_ = 0;
  std::size_t count_ = 0;
};

/// Keeps an audit file while it lives. Borrows the controller and the clock. A failure is logged
/// once, and tried again every second.
std::jthread FollowAudit(const Controller& controller, AuditFile file, base::Clock& clock);

}  // namespace onepiece::nodemanager
