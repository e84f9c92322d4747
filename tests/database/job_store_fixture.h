// A job store with a clock that tests move, and helpers that make jobs and results.
#pragma once

#include <QtTest>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/database/job_store.h"
#include "cluster/job/job_record.h"
#include "tests/reason.h"

namespace onepiece::database {

inline bool NobodyAlive(const v1::WorkHolder&) { return false; }
inline bool EveryoneAlive(const v1::WorkHolder&) { return true; }

inline base::Uid ToUid(const std::string& uid) { return *base::Uid::Parse(uid); }

/// The header of a message with the job's result.
inline message::Header HeaderOf(const std::string& uid, std::uint64_t run = 0) {
  message::Header header;
  header.kind = message::Kind::kResult;
  header.uid = ToUid(uid);
  header.run = run;
  return header;
}

/// A store, the clock that it reads, and the changes that it announced.
struct StoreFixture {
  explicit StoreFixture(JobStoreOptions options = {})
      : store(options, clock,
              {.changed =
                   [this](const base::Uid& uid, Change change) {
                     changes.push_back({uid, change});
                   },
               .made = [this](const v1::JobRecord&) { life += "made "; },
               .ended =
                   [this](const v1::JobRecord& record) {
                     life += v1::Job::State_Name(record.job().state()) + " ";
                   },
               .forgotten = [this](const base::Uid&) { life += "forgotten "; },
               .served =
                   [this](const base::Uid&, const Artifacts* artifacts) {
                     life += artifacts != nullptr ? "served " : "dropped ";
                   }}) {}

  v1::JobRecord NewRecord(const std::string& app = "app") {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    job.set_uid(base::Uid::Generate(base::ToUnixMs(clock.WallNow())).ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id(app);
    *job.mutable_create_time() = job::ToTimestamp(clock.WallNow());
    job::SetTimeLimit(std::chrono::seconds(100), clock.WallNow(), record);
    record.set_fingerprint("f");
    record.set_result_ttl_s(50);
    return record;
  }
  std::string Create(const std::string& app = "app") {
    const v1::JobRecord record = NewRecord(app);
    RequireOk(store.Create(record));
    return record.job().uid();
  }
  template <typename T>
  static void RequireOk(const T& result) {
    if (!result.ok()) qFatal("%s", result.status().ToString().c_str());
  }
  v1::Job::State State(const std::string& uid) {
    const auto record = store.Get(uid);
    return record.ok() ? job::PublicJob(*record).state() : v1::Job::STATE_UNSPECIFIED;
  }
  StoreOutcome Store(const std::string& uid, const std::string& bytes,
                     message::Kind kind = message::Kind::kResult, StoreMode mode = {}) {
    const auto outcome = store.StoreResult(Bundle(uid, bytes), kind, mode);
    RequireOk(outcome);
    return *outcome;
  }
  ResultBundle Bundle(const std::string& uid, const std::string& bytes) {
    message::Message message;
    message.header.uid = *base::Uid::Parse(uid);
    message.header.app = "app";
    message.header.ingress_time = clock.WallNow();
    message.header.deadline = clock.Now() + std::chrono::seconds(100);
    message.artifacts.push_back({"video",
                                 message::DType::kBytes,
                                 {static_cast<std::int64_t>(bytes.size())},
                                 "video/mp4",
                                 message::Buffer::FromString(bytes)});
    return *MakeResultBundle(message);
  }
  v1::UpdateJobRequest Progress(const std::string& uid, const std::string& node, int stage,
                                int step) {
    v1::UpdateJobRequest request;
    request.set_uid(uid);
    v1::WorkHolder& holder = *request.mutable_progress()->mutable_holder();
    holder.set_node_id(node);
    holder.set_incarnation(1);
    holder.set_stage("stage" + std::to_string(stage));
    holder.set_stage_index(stage);
    holder.set_successors(1);
    if (stage > 0) holder.set_from("stage" + std::to_string(stage - 1));
    request.mutable_progress()->set_step(step);
    request.mutable_progress()->set_steps(10);
    return request;
  }

  base::ManualClock clock;
  std::vector<std::pair<base::Uid, Change>> changes;
  std::string life;  ///< The calls of the other hooks, each a word and a space.
  JobStore store;
};

}  // namespace onepiece::database
