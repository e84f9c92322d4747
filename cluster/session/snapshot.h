// A snapshot is what is known of a cluster at one instant. The console draws everything from
// snapshots: live ones come from Session, past ones from history::Recording (docs/console.md, "How
// it is built").
//
// It has a few parts, each with its own instant. A part is replaced as a whole and never changed. A
// snapshot therefore costs a few pointers, and two snapshots are compared by comparing pointers
// first.
//
// Threading: snapshots are values. Any thread may read a published one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onepiece/v1/consensus.pb.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/ring.pb.h"

namespace onepiece::session {

/// One part of what is known.
///
/// Units: times are milliseconds since 1970 by this machine's clock, here and in cluster/history
/// and gui, unless a name says otherwise.
template <typename T>
struct Part {
  std::shared_ptr<const T> value;  ///< Null when it was never heard of.
  std::int64_t as_of_ms = 0;       ///< The last instant at which it was known to be true.
  /// Tells people why it is not newer. Empty when it is as new as it can be.
  std::string error;
};

/// Rates per second between the last two answers of the same process. There are none when a counter
/// fell, because the process was restarted.
struct RingRates {
  double messages_per_s = 0;
  double bytes_per_s = 0;
  double stalls_per_s = 0;
  double corrupted_per_s = 0;
  double duplicates_per_s = 0;
};

/// The ring of one process.
struct RingEntry {
  std::string node_id;
  std::uint64_t incarnation = 0;
  v1::RingHealth health;
  std::int64_t as_of_ms = 0;       ///< When the process answered with `health`.
  std::optional<RingRates> rates;  ///< Absent after the first answer.
  std::string error;               ///< Why it did not answer the last time.
};
using Rings = std::vector<RingEntry>;  ///< Sorted by node id.

/// How certain the state of a job is.
enum class Certainty {
  kKnown,
  kReconciling,   ///< The connection was lost, and no server has told of it again.
  kUnknownAtEnd,  ///< A recording ends before the job does.
};
struct JobEntry {
  std::shared_ptr<const v1::Job> job;
  Certainty certainty = Certainty::kKnown;
};
/// The jobs, newest first (create_time, then uid).
struct JobList {
  std::vector<JobEntry> jobs;
  /// Older jobs are left out, because there are more than the session keeps
  /// (SessionOptions::max_jobs) or because they are not listed yet.
  bool truncated = false;
};

struct DatabaseEntry {
  std::string node_id;
  v1::Database database;
  std::int64_t as_of_ms = 0;
  std::string error;  ///< As in RingEntry.
};
using Databases = std::vector<DatabaseEntry>;  ///< Sorted by node id.

/// A replica of the NodeManager.
struct ReplicaEntry {
  std::string name;  ///< The name of its seat.
  std::string address;
  std::optional<v1::ReplicaStatus> status;
  std::string error;  ///< Why it did not answer.
};
using Replicas = std::vector<ReplicaEntry>;  ///< Sorted by name.

using Audit = std::vector<v1::AuditEntry>;  ///< The last 1000 entries, newest first.

/// What a rule of cluster/history/alerts.h says about one thing. The states stay apart: no data
/// does not mean that all is well, and a rule that cannot be computed says so.
struct Alert {
  enum class State { kPending, kFiring, kResolved, kNoData, kError };
  enum class Severity { kInfo, kWarning, kCritical };
  std::string id;      ///< "rule/entity", which is unique.
  std::string rule;    ///< "ring-stuck"
  std::string entity;  ///< "node/instance-3", "pool/default/diffusion", "cluster"
  State state = State::kPending;
  Severity severity = Severity::kWarning;
  std::int64_t since_ms = 0;  ///< When this state began.
  std::string text;           ///< What is wrong, with numbers, and what to do.
  std::optional<double> value, threshold;
  std::string acknowledged_by;  ///< Who has seen it; empty: nobody. It silences nothing.
  std::int64_t silenced_until_ms = 0;
  std::string silence_reason;
};
using Alerts = std::vector<Alert>;  ///< The worst first, and the oldest first among equals.

struct Snapshot {
  std::int64_t at_ms = 0;     ///< The instant that it shows.
  bool recorded = false;      ///< From a recording, so nothing in it can be changed.
  Part<v1::Cluster> cluster;  ///< Nodes with their loads and activities, workflows, revision.
  Part<v1::Elasticity> elasticity;
  Part<Rings> rings;
  Part<JobList> jobs;
  Part<Databases> databases;
  Part<Replicas> replicas;
  Part<Audit> audit;
  Part<v1::ListPlansResponse> plans;  ///< The newest 100, newest first.
  Part<Alerts> alerts;
};

}  // namespace onepiece::session
