#include "tests/database/simulation/history.h"

#include <algorithm>
#include <memory>

#include "cluster/database/placement.h"
#include "cluster/job/job_record.h"
#include "tests/database/simulation/database.h"
#include "tests/database/simulation/instance.h"
#include "tests/database/simulation/nemesis.h"
#include "tests/database/simulation/proxy.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFaults = 60s;  // How long faults strike.
constexpr Duration kEnd = 180s;
constexpr Duration kLimit = 400s;      // For a job: none may need it.
constexpr Duration kShortLimit = 20s;  // For a job that may.
constexpr Duration kPatience = 40s;    // Of a client.
constexpr int kJobs = 40;
constexpr double kCalm = 0.05;  // Share of the histories without a fault.
constexpr char kClient[] = "client";

class History {
 public:
  explicit History(std::uint64_t seed) : cluster_(seed), world_(cluster_.world) {
    for (const char* id : {"db-1", "db-2", "db-3"})
      cluster_.databases[id] = std::make_unique<Database>(id, cluster_);
    for (const std::string& stage : Stages()) {
      for (const std::string& id : {stage + "-1", stage + "-2"})
        cluster_.instances[id] = std::make_unique<Instance>(id, stage, cluster_);
    }
    for (const char* id : {"proxy-1", "proxy-2"})
      cluster_.proxies[id] = std::make_unique<Proxy>(id, "", cluster_);
  }

  Outcome Run() {
    cluster_.manager.Start();
    world_.Start(kClient);
    for (auto& [id, database] : cluster_.databases) database->Start();
    for (auto& [id, instance] : cluster_.instances) instance->Start();
    for (auto& [id, proxy] : cluster_.proxies) proxy->Start();
    calm_ = world_.Chance(kCalm);
    jobs_.reserve(kJobs);
    for (int i = 0; i < kJobs; ++i) world_.After(world_.Between(1s, kFaults), [this] { Begin(); });
    if (!calm_) nemesis_.Begin(kFaults);
    world_.RunUntil(kEnd);
    if (world_.violations().empty()) Judge();
    world_.EndAll();
    outcome_.violations = world_.violations();
    outcome_.recomputed = cluster_.ledger.recomputed();
    outcome_.restarted = cluster_.ledger.restarted();
    outcome_.faults = nemesis_.faults();
    if (calm_) ++outcome_.faults["calm histories"];
    return outcome_;
  }

 private:
  struct Job {
    Request request;
    bool accepted = false;
    bool given_up = false;  ///< Its client does not want it.
    bool purged = false;    ///< Its client was told that it is gone.
  };

  // --- What the clients do.
  void Begin() {
    const std::size_t index = jobs_.size();
    Job& job = jobs_.emplace_back();
    job.request = {.uid = world_.NewUid(),
                   .app = world_.Chance(0.5) ? kChain : kGraph,
                   .limit = !calm_ && world_.Chance(0.1) ? kShortLimit : kLimit};
    if (!calm_ && world_.Chance(0.02))
      cluster_.poison[job.request.uid] = world_.Chance(0.5) ? "paint" : "encode";
    world_.Spawn(kClient, [this, index] { Submit(index); });
    // A client that hears nothing asks another proxy, while the first one is still at work.
    if (world_.Chance(0.4)) {
      world_.Spawn(kClient, [this, index] {
        world_.Sleep(world_.Between(0s, world_.Chance(0.5) ? 20ms : 4s));
        Submit(index);
      });
    }
    if (!calm_ && world_.Chance(0.25)) {
      world_.Spawn(kClient, [this, index] {
        world_.Sleep(world_.Between(0s, 4s));
        (void)Tell(jobs_[index].request.uid, &Proxy::Cancel);
      });
    }
  }

  template <typename What, typename Method>
  absl::Status Tell(const What& what, Method method) {
    const std::string id = world_.Chance(0.5) ? "proxy-1" : "proxy-2";
    Proxy* const proxy = cluster_.proxies.at(id).get();
    const auto reply = world_.AskThread<absl::Status>(
        kClient, World::PlaceOf(world_.AddressOf(id)),
        [proxy, what, method] { return (proxy->*method)(what); }, 8s);
    return reply.answer.value_or(absl::UnavailableError("no answer"));
  }

  void Submit(std::size_t index) {
    const base::MonotonicTime until = world_.Now() + kPatience;
    while (world_.Now() < until) {
      const absl::Status told = Tell(jobs_[index].request, &Proxy::Submit);
      if (told.ok()) {
        if (!std::exchange(jobs_[index].accepted, true) && world_.Chance(0.2)) Purge(index);
        return;
      }
      if (!absl::IsUnavailable(told)) return;
      world_.Sleep(world_.Between(200ms, 1s));
    }
  }

  // A client that has its result, or does not want it, gives it up.
  void Purge(std::size_t index) {
    const base::Uid uid = jobs_[index].request.uid;
    const bool deletes = !calm_ && world_.Chance(0.5);
    jobs_[index].given_up = true;
    const base::MonotonicTime until = world_.Now() + kPatience;
    while (world_.Now() < until) {
      world_.Sleep(1s);
      const absl::Status told =
          deletes ? Tell(uid, &Proxy::Delete) : Tell(uid, &Proxy::Acknowledge);
      if (!told.ok()) continue;
      jobs_[index].purged = true;
      world_.Tell((deletes ? "deleted " : "acknowledged ") + uid.ToString());
      return;
    }
  }

  // --- The end. Everything is well again, and has been for long enough.
  void Judge() {
    for (const Job& job : jobs_) JudgeJob(job);
    for (const auto& [id, instance] : cluster_.instances) JudgeLeft(id, instance->Left());
    for (const auto& [id, proxy] : cluster_.proxies) JudgeLeft(id, proxy->Left());
  }

  void JudgeLeft(const std::string& id, const std::string& left) {
    if (!left.empty()) world_.Violation(id + " still has" + left);
  }

  void JudgeJob(const Job& job) {
    const base::Uid& uid = job.request.uid;
    const std::string name = "job " + uid.ToString();
    for (const std::string& id : Keepers(uid)) JudgePurged(job, name, id);
    const auto told = cluster_.ledger.told().find(uid);
    if (!job.accepted) return;
    ++outcome_.jobs;
    if (told == cluster_.ledger.told().end()) {
      if (!job.given_up) world_.Violation(name + " has no end");
      return;
    }
    const v1::Job::State end = told->second.state();
    const std::string& reason = told->second.error().reason();
    ++outcome_.ends[v1::Job::State_Name(end) + (reason.empty() ? "" : " " + reason)];
    if (reason == "DEADLINE_EXCEEDED" && job.request.limit == kLimit)
      world_.Violation(name + " needed its deadline");
    if (calm_) JudgeCalm(job, name, end);
    if (job.given_up) return;
    for (const std::string& id : Keepers(uid)) JudgeAt(id, job, name, end);
  }

  // Without a fault every stage is computed once.
  void JudgeCalm(const Job& job, const std::string& name, v1::Job::State end) {
    if (end != v1::Job::SUCCEEDED) world_.Violation(name + " did not succeed without a fault");
    for (const v1::Workflow& workflow : cluster_.manager.table()->table().workflows()) {
      if (workflow.app_id() != job.request.app) continue;
      for (const v1::StageSpec& stage : workflow.stages()) {
        const int times = cluster_.ledger.computed(job.request.uid, stage.stage());
        if (times == 1) continue;
        world_.Violation(name + ": stage " + stage.stage() + " was computed " +
                         std::to_string(times) + " times without a fault");
      }
    }
  }

  // What a client gave up does not come back.
  void JudgePurged(const Job& job, const std::string& name, const std::string& id) {
    if (!job.purged) return;
    if (cluster_.databases.at(id)->store().FindArtifact(job.request.uid.ToString(), "").ok())
      world_.Violation(name + " was given up, and is at " + id);
  }

  std::vector<std::string> Keepers(const base::Uid& uid) const {
    database::Places all;
    for (const auto& [id, database] : cluster_.databases) all.push_back({.node_id = id});
    std::vector<std::string> keepers;
    for (const std::string* id : database::KeepersOf(uid, all, 2)) keepers.push_back(*id);
    return keepers;
  }

  void JudgeAt(const std::string& id, const Job& job, const std::string& name, v1::Job::State end) {
    database::JobStore& store = cluster_.databases.at(id)->store();
    const std::string uid = job.request.uid.ToString();
    const auto record = store.Get(uid);
    if (!record.ok()) return world_.Violation(name + " is unknown to " + id);
    const v1::Job::State here = record->job().state();
    if (record->lease().has_time_left())
      world_.Violation(name + " has ended, and its lease holds at " + id);
    if (here != end && !cluster_.ledger.split) {
      return world_.Violation(name + " is " + v1::Job::State_Name(here) + " at " + id + ", and " +
                              v1::Job::State_Name(end) + " was told");
    }
    if (here != v1::Job::SUCCEEDED) return;
    const auto bytes = store.FindArtifact(uid, "");
    if (!bytes.ok()) {
      return world_.Violation(name + " SUCCEEDED and has no bytes at " + id + ": " +
                              bytes.status().ToString());
    }
    const std::string text(bytes->data.text());
    if (Bare(text) != ResultOf(job.request.app, InputOf(job.request.uid)))
      world_.Violation(name + " has other bytes at " + id + ": " + text);
    if (RunsIn(text).size() != 1) world_.Violation(name + " is made of several runs: " + text);
  }

  Cluster cluster_;
  World& world_;
  Nemesis nemesis_{cluster_};
  bool calm_ = false;
  std::vector<Job> jobs_;
  Outcome outcome_;
};

}  // namespace

void Outcome::Add(const Outcome& other) {
  jobs += other.jobs;
  recomputed += other.recomputed;
  restarted += other.restarted;
  for (const auto& [end, count] : other.ends) ends[end] += count;
  for (const auto& [fault, count] : other.faults) faults[fault] += count;
}

Outcome RunHistory(std::uint64_t seed) { return History(seed).Run(); }

}  // namespace onepiece::simulation
