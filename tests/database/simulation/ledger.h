// What happened in a history, written down outside of its processes, and the rules that it is held
// against.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/message/message.h"
#include "onepiece/v1/database.pb.h"
#include "tests/database/simulation/world.h"

namespace onepiece::simulation {

/// How often the work of a stage is begun again after deaths (Workflow.retries).
inline constexpr int kRetries = 2;

/// Returns what a stage makes of its inputs: text that names the run and the attempt of each
/// computation in it.
std::string OutputOf(const message::Header& header, const std::string& inputs);
/// Returns the text without its runs and attempts.
std::string Bare(const std::string& output);
/// Returns the runs that the text names.
std::set<std::string> RunsIn(const std::string& output);

class Ledger {
 public:
  explicit Ledger(World& world) : world_(world) {}

  using Incarnation = std::pair<std::string, std::uint64_t>;
  /// The NodeManager has declared this incarnation dead, or has heard of a later one.
  void Died(const std::string& node, std::uint64_t incarnation) {
    dead_.insert({node, incarnation});
  }
  /// A process has come, or has come back, under this incarnation.
  void Registered(const std::string& node, std::uint64_t incarnation) {
    registered_[{node, incarnation}] = world_.Now();
  }
  /// The process has died with all that it had in its memory.
  void Killed(const std::string& node) { killed_[node] = world_.Now(); }
  /// An instance has taken this work in. `address` tells its lives apart.
  void Taken(const message::Header& header, const Incarnation& by, const std::string& address);
  /// An instance begins to compute, and has computed.
  void Begun(const message::Header& header, const Incarnation& by);
  void Computed(const message::Header& header);
  /// A database has given a proxy the lease to start a job, or renewed it.
  void Granted(const v1::JobRecord& record);
  /// A proxy begins to give a job's work to an entrance.
  void Delivers(const base::Uid& uid, const Incarnation& proxy);
  /// A database has taken an update. `before` is its record before that, and `holds` says whether
  /// it had the result of the job already.
  void Updated(const v1::UpdateJobRequest& update, const v1::JobRecord& before, bool holds,
               const v1::JobRecord& after);
  /// A database may have told its clients of this end.
  void Ended(const v1::JobRecord& record, const std::string& by);
  /// The ends of jobs, as somebody was first told of them.
  [[nodiscard]] const std::map<base::Uid, v1::Job>& told() const { return told_; }
  [[nodiscard]] int computed(const base::Uid& uid, const std::string& stage) const;
  /// Jobs that were started in several runs.
  [[nodiscard]] int restarted() const;
  /// How often a stage's work was computed more than once.
  [[nodiscard]] int recomputed() const { return recomputed_; }

  /// Two databases were apart, so each may have told an end of its own.
  bool split = false;
  /// A keeper did not answer in time, so a success may be told with one copy until then.
  base::MonotonicTime troubled_until{};

 private:
  void CheckLost(const v1::JobRecord& record);
  void CheckQuarantined(const v1::JobRecord& record);

  World& world_;
  std::set<Incarnation> dead_;
  std::map<Incarnation, base::MonotonicTime> registered_;
  std::map<std::string, base::MonotonicTime> killed_;  // When each died last.
  /// Who had work of a job, and who kept it.
  std::map<base::Uid, std::set<std::pair<Incarnation, Incarnation>>> holders_;
  std::map<base::Uid, v1::Job> told_;
  /// Who began to compute a stage of a job.
  std::map<std::pair<base::Uid, std::string>, std::set<Incarnation>> begun_;
  std::map<std::pair<base::Uid, std::string>, int> computed_;
  int recomputed_ = 0;
  std::map<std::pair<base::Uid, Incarnation>, base::MonotonicTime> granted_;
  /// The largest run that a process has taken in; its address is that of its life.
  std::map<std::pair<base::Uid, std::string>, std::uint64_t> runs_;
  std::map<base::Uid, std::set<std::uint64_t>> started_;
};

}  // namespace onepiece::simulation
