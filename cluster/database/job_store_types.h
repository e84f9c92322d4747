// The types that the job store takes and returns, apart from the records themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/result_bundle.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

/// The limits that may change while a store works. As in JobStoreOptions.
struct JobStoreLimits {
  std::int64_t budget_bytes = 0, max_records = 0;
  base::Duration tombstone_ttl{};
};

struct JobStoreOptions {
  std::int64_t budget_bytes = std::int64_t{1} << 30;  ///< For result bytes in memory.
  std::int64_t max_records = 100'000;
  /// Serialised size of all records. The limit is checked when a record is added. A record can grow
  /// later, but only by its bounded lists of holders and timings.
  std::int64_t max_record_bytes = std::int64_t{512} << 20;
  /// Evict results that were sent to their client when there is no room for others.
  bool evict = true;
  /// How long a tombstone lives at least, after the job's deadline too, because another database
  /// may have the job open until then. That of a job that was deleted, fetched or evicted lives
  /// longer, by the job's result_ttl_s, for which that database may then have its result.
  base::Duration tombstone_ttl = std::chrono::hours(1);
  /// A holder that has not been alive for this long has lost its jobs, if nobody keeps their work.
  base::Duration holder_grace = std::chrono::seconds(1);
  /// The same if their keeper is not alive either. It may only be stopped: then it comes back under
  /// a later incarnation with all that it keeps.
  base::Duration keeper_grace = std::chrono::seconds(15);
  /// How long a claim to start a job holds, unless it is renewed. Scaled.
  base::Duration start_lease = std::chrono::seconds(2);
};

struct StoreMode {
  /// Keep the bytes, but show them to nobody: the job succeeds only with Confirm.
  bool hold = false;
  /// Return kFull instead of kRefused when room may yet be made.
  bool wait_for_room = false;
};

enum class StoreOutcome {
  kStored,
  kHeld,     ///< Kept, and hidden until Confirm.
  kLate,     ///< The job has ended already, or has this result: it is counted and dropped.
  kRefused,  ///< No room. A kResult fails its job with RESULT_BUDGET_EXCEEDED; a kReplica is only
             ///< dropped.
  kFull,     ///< No room for the bytes now. The job goes on.
};

/// The part of a job that a peer does not have yet.
enum class Change { kRecord, kResultBytes };

using Artifacts = std::vector<StoredArtifact>;

/// A state of a job, as clients see it. All who watch the job share it.
struct JobRevision {
  std::shared_ptr<const v1::Job> job;
  std::uint64_t revision = 0;  ///< Above those of all earlier states of any job of the store.
};
/// Takes the states of a job, or NOT_FOUND. `repeat`: nothing has changed, but some time has
/// passed. It must be quick and must not wait.
using JobSubscriber = std::function<void(const absl::StatusOr<JobRevision>&, bool repeat)>;

/// Functions that the store calls. It calls them under a shard's lock, so the calls of one job are
/// in order. They must be quick, must not wait, and must not call the store. Any may be empty.
struct JobStoreHooks {
  /// A peer does not have this yet.
  std::function<void(const base::Uid&, Change)> changed;
  /// A record was made. Called again when the real record completes one that was made up from a
  /// result.
  std::function<void(const v1::JobRecord&)> made;
  /// A job is about to end, as its record proposes. Returns whether another keeper is asked first;
  /// JobStore::Confirm ends the job then. If not, it has ended.
  std::function<bool(const base::Uid&)> settle;
  /// Work whose holder is dead has a living keeper, as the record names them. Returns whether that
  /// keeps it still, as far as is known. Called in each sweep.
  std::function<bool(const base::Uid&, const v1::WorkHolder&)> kept;
  /// A job has ended. Called again when it becomes a tombstone.
  std::function<void(const v1::JobRecord&)> ended;
  std::function<void(const base::Uid&)> forgotten;
  /// FindArtifact serves these artifacts of a job from now on; with nullptr it serves none. The
  /// store releases the artifacts that it served before only after this returns.
  std::function<void(const base::Uid&, const Artifacts*)> served;
};

/// Totals since the start, and what is held now.
struct JobStoreStats {
  std::int64_t records = 0, results = 0, result_bytes = 0, budget_bytes = 0;  ///< In memory.
  /// Results of succeeded jobs whose bytes are not here: a peer may send them.
  std::int64_t missing_results = 0;
  std::int64_t spilled_results = 0, spilled_bytes = 0;
  std::int64_t fetched_tombstones = 0, expired_tombstones = 0, deleted_tombstones = 0;
  /// Tombstones that made room for other records before their time.
  std::uint64_t tombstones_forgotten = 0;
  std::uint64_t stored = 0, late_results = 0, refused_results = 0, evicted_results = 0;
  std::uint64_t expired = 0, lost = 0, deadline_exceeded = 0, refused_records = 0;
  std::uint64_t lost_on_restart = 0;
};

}  // namespace onepiece::database
