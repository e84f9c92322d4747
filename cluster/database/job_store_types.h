// What the job store takes and answers, apart from records themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/result_bundle.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct JobStoreOptions {
  std::int64_t budget_bytes = std::int64_t{1} << 30;  ///< For result bytes in memory.
  std::int64_t max_records = 100'000;
  /// Serialised size of all records. Checked as a record comes; what it grows by later is bounded
  /// by what a record takes of holders and timings.
  std::int64_t max_record_bytes = std::int64_t{512} << 20;
  base::Duration tombstone_ttl = std::chrono::hours(1);
  /// A holder that is not alive for so long has lost its jobs.
  base::Duration holder_grace = std::chrono::seconds(1);
};

struct StoreMode {
  /// Keep the bytes, but let nobody see them: the job SUCCEEDED only with Confirm.
  bool hold = false;
  /// Answer kFull where kRefused is due for want of room that may yet come.
  bool wait_for_room = false;
};

enum class StoreOutcome {
  kStored,
  kHeld,     ///< As StoreMode::hold asked.
  kLate,     ///< The job has ended already, or has this result: counted and dropped.
  kRefused,  ///< No room. A kResult ends its job FAILED(RESULT_BUDGET_EXCEEDED); a kReplica is only
             ///< not kept.
  kFull,     ///< No room now; nothing was changed.
};

/// What of a job a peer does not have yet.
enum class Change { kRecord, kResultBytes };

using Artifacts = std::vector<StoredArtifact>;

/// Called under a shard's lock, so in order for each job: they must be quick, must not wait, and
/// must not call the store. Any may be empty.
struct JobStoreHooks {
  /// A peer does not have this yet.
  std::function<void(const base::Uid&, Change)> changed;
  /// A record was made; again when a record that was made up from its result is completed.
  std::function<void(const v1::JobRecord&)> made;
  /// It has ended; again when it becomes a tombstone.
  std::function<void(const v1::JobRecord&)> ended;
  std::function<void(const base::Uid&)> forgotten;
  /// What FindArtifact serves of a job from now on; nullptr: nothing any more. The store lets go of
  /// what was served before after this returns.
  std::function<void(const base::Uid&, const Artifacts*)> served;
};

/// Totals since the start, and what is held now.
struct JobStoreStats {
  std::int64_t records = 0, results = 0, result_bytes = 0, budget_bytes = 0;  ///< In memory.
  std::int64_t missing_results = 0;  ///< Of jobs that SUCCEEDED: a peer may bring their bytes.
  std::int64_t spilled_results = 0, spilled_bytes = 0;
  std::int64_t fetched_tombstones = 0, expired_tombstones = 0, deleted_tombstones = 0;
  std::uint64_t stored = 0, late_results = 0, refused_results = 0, evicted_results = 0;
  std::uint64_t expired = 0, lost = 0, deadline_exceeded = 0, refused_records = 0;
  std::uint64_t lost_on_restart = 0;
};

}  // namespace onepiece::database
