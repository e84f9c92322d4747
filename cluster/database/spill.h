// Results on disk: files of their own, an index in SQLite beside them, read by mapping them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/result_bundle.h"

namespace onepiece::database {

struct SpillOptions {
  std::string folder;      ///< Made when it is not there; one process at a time.
  std::string cluster_id;  ///< A folder of another cluster is refused.
  std::int64_t budget_bytes = std::int64_t{8} << 30;
};

struct SpillStats {
  std::int64_t results = 0, bytes = 0, budget_bytes = 0;
  std::uint64_t written = 0, removed = 0, failed_writes = 0;
  std::uint64_t damaged = 0;  ///< Found so when they were opened or read, and dropped.
};

/// Crash-safe: a file is written under another name, synchronised, renamed, and only then entered
/// in the index; removal is the other way round. Open drops files that the index does not know and
/// entries whose file is missing, short or of another result.
///
/// Ownership: Artifacts handed out map their file and outlive its removal.
/// Threading: Thread-safe; one writer at a time.
/// Blocking: Disk.
class Spill {
 public:
  /// Errors: FAILED_PRECONDITION (OTHER_CLUSTER, FOLDER_IN_USE, NEWER_FORMAT), PERMISSION_DENIED,
  /// UNAVAILABLE (DISK_FAILED). A damaged index is set aside (named in the log) and made anew.
  static absl::StatusOr<std::unique_ptr<Spill>> Open(SpillOptions options);
  virtual ~Spill() = default;

  /// The results of earlier runs, in no order. Their bytes are checked when they are first read
  /// (Read), sizes and headers now.
  [[nodiscard]] virtual std::vector<base::Uid> Kept() const = 0;
  /// Writes a result; what it returns holds the same artifacts, mapped from the file.
  /// Errors: RESOURCE_EXHAUSTED (SPILL_FULL: the budget; DISK_FULL), UNAVAILABLE (DISK_FAILED);
  /// nothing is left of it then.
  virtual absl::StatusOr<std::vector<StoredArtifact>> Write(
      const base::Uid& uid, std::span<const StoredArtifact> artifacts) = 0;
  /// Maps a result and checks every byte.
  /// Errors: NOT_FOUND, DATA_LOSS (SPILL_DAMAGED: it is dropped).
  virtual absl::StatusOr<std::vector<StoredArtifact>> Read(const base::Uid& uid) = 0;
  /// The file is gone when this returns; no-op when there is none.
  virtual void Remove(const base::Uid& uid) = 0;
  [[nodiscard]] virtual SpillStats stats() const = 0;

 protected:
  Spill() = default;
};

}  // namespace onepiece::database
