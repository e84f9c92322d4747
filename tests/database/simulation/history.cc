#include "tests/database/simulation/history.h"

#include <algorithm>
#include <memory>

#include "cluster/database/placement.h"
#include "cluster/job/job_record.h"
#include "tests/database/simulation/database.h"
#include "tests/database/simulation/world.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFaults = 60s;  // How long faults strike.
constexpr Duration kEnd = 150s;
constexpr Duration kLimit = 60s;  // For a job.
constexpr int kJobs = 40;
const std::vector<std::string> kStages = {"encode", "paint"};

class History {
 public:
  explicit History(std::uint64_t seed) : world_(seed) {
    for (const char* id : {"db-1", "db-2", "db-3"})
      databases_[id] = std::make_unique<Database>(id, world_, databases_, ledger_);
  }

  Outcome Run() {
    for (auto& [id, database] : databases_) database->Start();
    for (const std::string& stage : kStages) {
      for (const char* number : {"-1", "-2"}) world_.Start(stage + number);
    }
    world_.Start("proxy");
    if (world_.Chance(0.3)) world_.loss = 0.01;
    for (int i = 0; i < kJobs; ++i) world_.After(world_.Between(0s, kFaults), [this] { Submit(); });
    world_.After(world_.Between(1s, 10s), [this] { StrikeDatabase(); });
    if (world_.Chance(0.7)) world_.After(world_.Between(1s, 10s), [this] { StrikeInstance(); });
    world_.After(kFaults, [this] { world_.loss = 0; });
    world_.RunUntil(kEnd);
    if (world_.violations().empty()) Judge();
    outcome_.violations = world_.violations();
    return outcome_;
  }

 private:
  struct Job {
    base::Uid uid;
    base::MonotonicTime deadline;
    bool accepted = false;
  };

  // --- What the nemesis does. One database is struck at a time, and the next one only when the
  // last one has caught up.
  void StrikeDatabase() {
    if (world_.Now() - start_ > kFaults) return;
    const std::string id = "db-" + std::to_string(1 + world_.Pick(3));
    const std::string other = "db-" + std::to_string(1 + world_.Pick(3));
    const Duration lasts = world_.Between(500ms, 8s);
    ++outcome_.faults;
    const auto kind = world_.Pick(5);
    if (kind < 2) {
      world_.Kill(id);
      world_.After(lasts, [this, id] { databases_.at(id)->Start(); });
    } else if (kind < 4 || other == id) {
      world_.Pause(id);
      world_.After(lasts, [this, id] { world_.Continue(id); });
    } else {
      // Both are alive and each may tell an end of its own.
      ledger_.split = true;
      world_.Cut(id, other);
      world_.After(lasts, [this, id, other] { world_.Join(id, other); });
    }
    world_.After(lasts + world_.Between(8s, 15s), [this] { StrikeDatabase(); });
  }

  void StrikeInstance() {
    if (world_.Now() - start_ > kFaults) return;
    const std::string id = kStages[world_.Pick(2)] + (world_.Chance(0.5) ? "-1" : "-2");
    ++outcome_.faults;
    const Duration lasts = world_.Between(500ms, 8s);
    if (world_.Chance(0.5)) {
      world_.Kill(id);
      world_.After(lasts, [this, id] { world_.Start(id); });
    } else {
      world_.Pause(id);
      world_.After(lasts, [this, id] { world_.Continue(id); });
    }
    world_.After(lasts + world_.Between(1s, 10s), [this] { StrikeInstance(); });
  }

  // --- The way of a job.
  std::vector<std::string> Keepers(const base::Uid& uid) const {
    std::vector<std::string> routed;
    for (const auto& [id, database] : databases_) {
      if (world_.Routed(id)) routed.push_back(id);
    }
    std::vector<std::string> keepers;
    for (const std::string* id : database::KeepersOf(uid, routed, 2)) keepers.push_back(*id);
    return keepers;
  }

  void Submit() {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    Job& made = jobs_.emplace_back();
    made.uid = world_.NewUid();
    made.deadline = world_.Now() + kLimit;
    job.set_uid(made.uid.ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id("app");
    *job.mutable_create_time() = job::ToTimestamp(world_.clock().WallNow());
    job::SetTimeLimit(kLimit, world_.clock().WallNow(), record);
    record.set_fingerprint("f");
    record.set_result_ttl_s(3600);
    Create(jobs_.size() - 1, record, 0);
  }

  void Create(std::size_t index, const v1::JobRecord& record, std::size_t tries) {
    const base::Uid uid = jobs_[index].uid;
    const std::vector<std::string> keepers = Keepers(uid);
    if (keepers.empty() || tries == 4) return;
    const std::string& id = keepers[tries % keepers.size()];
    world_.Call<bool>(
        "proxy", id, [this, id, record] { return databases_.at(id)->store().Create(record).ok(); },
        [this, index, record, tries](const World::Reply<bool>& created) {
          if (!created.answer.value_or(false)) return Create(index, record, tries + 1);
          jobs_[index].accepted = true;
          Hand(index, 0);
          if (world_.Chance(0.3))
            world_.After(world_.Between(0s, 4s), [this, index] { Cancel(index); });
        });
  }

  void Update(const std::string& from, const v1::UpdateJobRequest& request, int tries = 0) {
    const std::vector<std::string> keepers = Keepers(*base::Uid::Parse(request.uid()));
    if (keepers.empty() || tries == 8) return;
    const std::string& id = keepers[static_cast<std::size_t>(tries) % keepers.size()];
    world_.Call<bool>(
        from, id, [this, id, request] { return databases_.at(id)->store().Update(request).ok(); },
        [this, from, request, tries](const World::Reply<bool>& ok) {
          if (!ok.answer.value_or(false)) Update(from, request, tries + 1);
        });
  }

  void Cancel(std::size_t index) {
    v1::UpdateJobRequest request;
    request.set_uid(jobs_[index].uid.ToString());
    request.set_cancelled(true);
    Update("proxy", request, static_cast<int>(world_.Pick(2)));
  }

  // Hands a job to an instance of a stage, or its result to a database.
  void Hand(std::size_t index, std::size_t stage, const std::string& from = "proxy") {
    if (stage == kStages.size()) return Deliver(index, from, 0);
    std::vector<std::string> instances;
    for (const char* number : {"-1", "-2"}) {
      if (world_.Routed(kStages[stage] + number)) instances.push_back(kStages[stage] + number);
    }
    if (instances.empty())
      return world_.Later(from, 500ms, [this, index, stage, from] { Hand(index, stage, from); });
    const std::string to = instances[world_.Pick(instances.size())];
    v1::UpdateJobRequest update;
    update.set_uid(jobs_[index].uid.ToString());
    v1::WorkHolder& holder = *update.add_placed();
    holder.set_node_id(to);
    holder.set_incarnation(world_.At(to).incarnation);
    holder.set_stage(kStages[stage]);
    holder.set_stage_index(static_cast<int>(stage));
    holder.set_from(stage == 0 ? "" : kStages[stage - 1]);
    holder.set_successors(1);
    Update(from, update);
    world_.Write(from, to, [this, index, stage, to] {
      world_.Later(to, world_.Between(50ms, 2s),
                   [this, index, stage, to] { Hand(index, stage + 1, to); });
    });
  }

  void Deliver(std::size_t index, const std::string& from, std::size_t tries) {
    if (world_.Now() > jobs_[index].deadline) return;
    const std::vector<std::string> keepers = Keepers(jobs_[index].uid);
    if (keepers.empty()) return;
    const std::string& id = keepers[tries % keepers.size()];
    world_.Call<bool>(
        from, id,
        [this, id, index] {
          databases_.at(id)->TakeResult(ResultOf(jobs_[index]));
          return true;
        },
        [this, index, from, tries](const World::Reply<bool>& taken) {
          if (!taken.answer.has_value()) Deliver(index, from, tries + 1);
        });
  }

  static database::ResultBundle ResultOf(const Job& job) {
    message::Message message;
    message.header.uid = job.uid;
    message.header.app = "app";
    message.header.deadline = job.deadline;
    message.artifacts.push_back(
        message::BytesArtifact("video", "video/mp4", "result of " + job.uid.ToString()));
    return *database::MakeResultBundle(message);
  }

  // --- The end. Everything is well again, and has been for long enough.
  void Judge() {
    for (const Job& job : jobs_) {
      if (!job.accepted) continue;
      ++outcome_.jobs;
      const std::string name = "job " + job.uid.ToString();
      const auto told = ledger_.told.find(job.uid);
      if (told == ledger_.told.end()) {
        world_.Violation(name + " has no end");
        continue;
      }
      const v1::Job::State end = told->second.state();
      outcome_.succeeded += end == v1::Job::SUCCEEDED ? 1 : 0;
      outcome_.cancelled += end == v1::Job::CANCELLED ? 1 : 0;
      outcome_.failed += end == v1::Job::FAILED ? 1 : 0;
      for (const std::string& id : Keepers(job.uid)) JudgeAt(id, job, name, end);
    }
  }

  void JudgeAt(const std::string& id, const Job& job, const std::string& name, v1::Job::State end) {
    database::JobStore& store = databases_.at(id)->store();
    const auto record = store.Get(job.uid.ToString());
    if (!record.ok()) return world_.Violation(name + " is unknown to " + id);
    const v1::Job::State here = record->job().state();
    if (here != end && !ledger_.split) {
      return world_.Violation(name + " is " + v1::Job::State_Name(here) + " at " + id + ", and " +
                              v1::Job::State_Name(end) + " was told");
    }
    if (here != v1::Job::SUCCEEDED) return;
    if (const auto bytes = store.FindArtifact(job.uid.ToString(), ""); !bytes.ok()) {
      world_.Violation(name + " SUCCEEDED and has no bytes at " + id + ": " +
                       bytes.status().ToString());
    } else if (bytes->data.text() != "result of " + job.uid.ToString()) {
      world_.Violation(name + " has other bytes at " + id);
    }
  }

  World world_;
  Ledger ledger_;
  Databases databases_;
  const base::MonotonicTime start_ = world_.Now();
  std::vector<Job> jobs_;
  Outcome outcome_;
};

}  // namespace

Outcome RunHistory(std::uint64_t seed) { return History(seed).Run(); }

}  // namespace onepiece::simulation
