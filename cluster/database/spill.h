// Results on disk: each in a file of its own, with an index in SQLite. Results are read by mapping
// their files.
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
  std::string folder;      ///< Created when it does not exist. One process uses it at a time.
  std::string cluster_id;  ///< A folder of another cluster is refused.
  std::int64_t budget_bytes = std::int64_t{8} << 30;
};

struct SpillStats {
  std::int64_t results = 0, bytes = 0, budget_bytes = 0;
  std::uint64_t written = 0, removed = 0, failed_writes = 0;
  std::uint64_t damaged = 0;  ///< Results that were found damaged, and dropped.
};

/// Keeps results in files. It survives a crash at any moment: a file is written under another name,
/// synchronised, renamed, and only then entered into the index, and a removal takes these steps
/// back in reverse order. Open drops files that the index does not know, and entries whose file is
/// missing, too short or of another result. A file that cannot be read (EIO, no descriptors left)
/// is kept for a later start.
///
/// Ownership: artifacts that it hands out map their file and stay valid after its removal.
/// Threading: thread-safe. One thread writes at a time.
/// Blocking: every method but Kept and stats waits for the disk.
class Spill {
 public:
  /// Opens the folder. A damaged index is set aside (the log names it) and created anew from the
  /// files.
  ///
  /// Errors: FAILED_PRECONDITION (OTHER_CLUSTER, FOLDER_IN_USE, NEWER_FORMAT), PERMISSION_DENIED,
  /// UNAVAILABLE (DISK_FAILED).
  static absl::StatusOr<std::unique_ptr<Spill>> Open(SpillOptions options);
  virtual ~Spill() = default;

  /// Returns the results that lie here, in no order. Open has checked their sizes and headers; Read
  /// checks their bytes.
  [[nodiscard]] virtual std::vector<base::Uid> Kept() const = 0;
  /// Writes a result, and returns the same artifacts, mapped from the file. After an error nothing
  /// of the result is left.
  ///
  /// Errors: RESOURCE_EXHAUSTED (SPILL_FULL: the budget is used up; DISK_FULL), UNAVAILABLE
  /// (DISK_FAILED).
  virtual absl::StatusOr<std::vector<StoredArtifact>> Write(
      const base::Uid& uid, std::span<const StoredArtifact> artifacts) = 0;
  /// Maps a result and checks every byte. A damaged result is dropped. One that the disk or this
  /// process cannot read now is kept.
  ///
  /// Errors: NOT_FOUND, DATA_LOSS (SPILL_DAMAGED), and those of DiskError when it is kept.
  virtual absl::StatusOr<std::vector<StoredArtifact>> Read(const base::Uid& uid) = 0;
  /// Removes a result's file before it returns. Does nothing when there is none.
  virtual void Remove(const base::Uid& uid) = 0;
  /// Sets SpillOptions::budget_bytes. Files beyond a lower budget stay.
  virtual void SetBudget(std::int64_t bytes) = 0;
  [[nodiscard]] virtual SpillStats stats() const = 0;

 protected:
  Spill() = default;
};

}  // namespace onepiece::database
