// What is known of a cluster at one instant. Everything that the console shows is drawn from this:
// live it comes from Session, the past from history::Recording (DESIGN §11).
//
// What       A few parts, each with the instant that it is of. A part is replaced as a whole and
// never
//            changed, so that a snapshot costs a few pointers, and two of them are compared by
//            comparing pointers first.
// Threading  Values: a snapshot that has been published is read by any thread.
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

namespace onepiece::gui {

/// One part of what is known. Times are milliseconds since 1970 by the console's clock, here and
/// everywhere in gui/, unless a name says otherwise.
template <typename T>
struct Part {
  std::shared_ptr<const T> value;  ///< Null: never heard of.
  std::int64_t as_of_ms = 0;       ///< When it was true, as far as is known.
  /// Why it is not newer, for people; empty: it is as new as it can be.
  std::string error;
};

/// Per second, between the last two answers of the same process; counters that fell (a restart)
/// give none.
struct RingRates {
  double messages_per_s = 0;
  double bytes_per_s = 0;
  double stalls_per_s = 0;
  double corrupted_per_s = 0;
  double duplicates_per_s = 0;
};

/// The ring of one process, by its node.
struct RingEntry {
  std::string node_id;
  std::uint64_t incarnation = 0;
  v1::RingHealth health;
  std::int64_t as_of_ms = 0;       ///< When `health` was answered.
  std::optional<RingRates> rates;  ///< Absent at the first answer.
  std::string error;               ///< Why it did not answer the last time.
};
using Rings = std::vector<RingEntry>;  ///< By node id.

/// How sure it is that a job is what it is said to be.
enum class Certainty {
  kKnown,
  kReconciling,   ///< After a lost connection, until a server has told of it again.
  kUnknownAtEnd,  ///< A recording ends before the job does.
};
struct JobEntry {
  std::shared_ptr<const v1::Job> job;
  Certainty certainty = Certainty::kKnown;
};
/// Newest first (create_time, then uid).
struct JobList {
  std::vector<JobEntry> jobs;
  /// Older jobs were left out: more than the session keeps (SessionOptions::max_jobs), or not
  /// listed yet.
  bool truncated = false;
};

struct DatabaseEntry {
  std::string node_id;
  v1::Database database;
  std::int64_t as_of_ms = 0;
  std::string error;  ///< As in RingEntry.
};
using Databases = std::vector<DatabaseEntry>;  ///< By node id.

/// A replica of the NodeManager.
struct ReplicaEntry {
  std::string name;  ///< Of its seat.
  std::string address;
  std::optional<v1::ReplicaStatus> status;
  std::string error;  ///< Why it did not answer.
};
using Replicas = std::vector<ReplicaEntry>;  ///< By name.

using Audit = std::vector<v1::AuditEntry>;  ///< Newest first; the last 1000.

/// What a rule of gui/history/alerts.h says of one thing. The states are never folded together: no
/// data is not well, and a rule that cannot be computed is not silent.
struct Alert {
  enum class State { kPending, kFiring, kResolved, kNoData, kError };
  enum class Severity { kInfo, kWarning, kCritical };
  std::string id;      ///< "rule/entity", unique.
  std::string rule;    ///< "ring-stuck"
  std::string entity;  ///< "node/instance-3", "pool/default/diffusion", "cluster"
  State state = State::kPending;
  Severity severity = Severity::kWarning;
  std::int64_t since_ms = 0;  ///< In this state.
  std::string text;           ///< What is wrong, with numbers, and what to do.
  std::optional<double> value, threshold;
  std::string acknowledged_by;  ///< Empty: nobody. Says "seen"; silences nothing.
  std::int64_t silenced_until_ms = 0;
  std::string silence_reason;
};
using Alerts = std::vector<Alert>;  ///< Worst first, then oldest.

struct Snapshot {
  std::int64_t at_ms = 0;     ///< The instant that it shows.
  bool recorded = false;      ///< From a recording: nothing can be done to it.
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

}  // namespace onepiece::gui
