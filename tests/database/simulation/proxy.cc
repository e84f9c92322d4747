#include "tests/database/simulation/proxy.h"

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/work_holder.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDeliverTimeout = 1500ms;
constexpr Duration kTurnTimeout = 2500ms;
constexpr Duration kTurnPoll = 20ms;

v1::JobRecord MakeRecord(const Request& request, base::WallTime now) {
  v1::JobRecord record;
  v1::Job& job = *record.mutable_job();
  job.set_uid(request.uid.ToString());
  job.set_name("jobs/" + job.uid());
  job.set_request_id(job.uid());
  job.set_app_id(request.app);
  job.set_state(v1::Job::QUEUED);
  *job.mutable_create_time() = job::ToTimestamp(now);
  job::SetTimeLimit(request.limit, now, record);
  record.set_fingerprint("f");
  record.set_result_ttl_s(3600);
  return record;
}

std::vector<std::string> Unplaced(const node::Routing& routing, const v1::JobRecord& record) {
  std::vector<std::string> stages;
  if (record.deleted() || job::IsTerminal(record.job().state())) return stages;
  const auto entrances = routing.GraphOf(record.job().app_id()).Entrances();
  if (entrances.size() == 1 &&
      (record.job().state() != v1::Job::QUEUED || !record.holders().empty())) {
    return stages;
  }
  for (const std::string& stage : entrances) {
    const bool placed = std::ranges::any_of(record.holders(), [&](const v1::WorkHolder& holder) {
      return (holder.from().empty() && holder.stage() == stage) || holder.from() == stage;
    });
    if (!placed) stages.push_back(stage);
  }
  return stages;
}

}  // namespace

void Proxy::Start() {
  BeginLife();
  keeping_.reset();
  records_ = std::make_unique<Records>(id_, cluster_, *view_);
  keeping_ = std::make_unique<Keeping>(id_, cluster_, *view_, *records_);
}

// As Submission::Admit.
absl::Status Proxy::Submit(const Request& request) {
  const auto table = view_->routing();
  if (table->epoch() == 0) return absl::UnavailableError("not registered");
  for (const std::string& stage : table->GraphOf(request.app).Entrances()) {
    if (table->Instances(request.app, stage).empty()) return absl::UnavailableError("no instance");
  }
  v1::JobRecord wanted = MakeRecord(request, world().clock().WallNow());
  const v1::Endpoint self = view_->self();
  proxy::StartClaim claim(
      [this](const v1::ClaimStartRequest& asked) { return records_->Claim(asked); }, self,
      world().clock(), [this] { return world().Random(); });
  *wanted.mutable_lease() = claim.ForNewJob();
  const base::MonotonicTime asked = world().Now();
  ONEPIECE_ASSIGN_OR_RETURN(v1::CreateJobResponse created, records_->Create(wanted));
  v1::JobRecord record = std::move(*created.mutable_record());
  claim.Note(record, asked);
  if (!created.created() || !claim.holds()) {
    ONEPIECE_ASSIGN_OR_RETURN(record, AwaitTurn(claim, request.uid, std::move(record)));
    if (record.deleted()) return absl::FailedPreconditionError("deleted");
    if (Unplaced(*view_->routing(), record).empty()) return absl::OkStatus();
  }
  world().Tell(id_ + " starts run " + std::to_string(job::RunToStart(record)) + " " +
               request.uid.ToString());
  const absl::Status started = StartJob(request, self, claim, record);
  if (!started.ok()) claim.Release(record.job().uid());
  return started;
}

absl::StatusOr<v1::JobRecord> Proxy::AwaitTurn(proxy::StartClaim& claim, const base::Uid& uid,
                                               v1::JobRecord record) {
  const base::MonotonicTime until = world().Now() + kTurnTimeout;
  while (!Unplaced(*view_->routing(), record).empty() && !claim.holds()) {
    if (claim.IsOf(record) || !record.lease().has_time_left()) {
      ONEPIECE_ASSIGN_OR_RETURN(v1::ClaimStartResponse answer, claim.Take(uid.ToString()));
      record = std::move(*answer.mutable_record());
      if (claim.holds()) break;
    }
    if (world().Now() >= until) return absl::UnavailableError("another proxy starts the job");
    world().Sleep(kTurnPoll);
    ONEPIECE_ASSIGN_OR_RETURN(record, records_->Get(uid));
  }
  return record;
}

// As Submission::Start.
absl::Status Proxy::StartJob(const Request& request, const v1::Endpoint& claimant,
                             proxy::StartClaim& claim, const v1::JobRecord& record) {
  const auto table = view_->routing();
  message::Message message;
  message::Header& header = message.header;
  header.uid = request.uid;
  header.app = request.app;
  header.run = job::RunToStart(record);
  header.routing_epoch = table->epoch();
  header.deadline = world().Now() + job::FromProto(record.time_left());
  message.artifacts = {message::BytesArtifact("input", "text/plain", InputOf(request.uid))};
  const base::MonotonicTime deadline = world().Now() + kDeliverTimeout;
  v1::UpdateJobRequest update;
  update.set_uid(record.job().uid());
  absl::Status status;
  const std::vector<std::string> stages = Unplaced(*table, record);
  auto next = stages.begin();
  for (; next != stages.end(); ++next) {
    header.stage = *next;
    status = KeepClaim(claim, update.uid());
    if (!status.ok()) break;
    auto holder = SendTo(message, claimant, std::min(deadline, claim.until()));
    status = holder.status();
    if (!status.ok()) break;
    *update.add_placed() = *std::move(holder);
  }
  // As Submission::KeepRest.
  const bool begun = !record.holders().empty() || !update.placed().empty();
  for (; begun && next != stages.end(); ++next) {
    header.stage = *next;
    keeping_->kept().Keep(message);
    (void)keeping_->kept().Doubt(header);
  }
  auto& placed = *update.mutable_placed();
  placed.erase(
      std::remove_if(placed.begin(), placed.end(),
                     [](const v1::WorkHolder& holder) { return holder.node_id().empty(); }),
      placed.end());
  if (!placed.empty()) (void)records_->Update(update);
  return status;
}

absl::Status Proxy::KeepClaim(proxy::StartClaim& claim, const std::string& uid) {
  if (!claim.is_due()) return absl::OkStatus();
  const auto answer = claim.Take(uid);
  if (claim.holds()) return absl::OkStatus();
  return answer.ok() ? absl::UnavailableError("another proxy starts the job") : answer.status();
}

absl::StatusOr<v1::WorkHolder> Proxy::SendTo(message::Message& message,
                                             const v1::Endpoint& claimant,
                                             base::MonotonicTime deadline) {
  const message::Header& header = message.header;
  cluster_.ledger.Delivers(header.uid, {claimant.node_id(), claimant.incarnation()});
  keeping_->kept().Keep(message);
  const auto table = view_->routing();
  const auto sent = keeping_->Deliver(message, deadline - world().Now(), deadline);
  if (sent.ok()) {
    v1::WorkHolder holder = node::HolderAt(*table, header, sent->endpoint, sent->attempt);
    holder.set_routing_epoch(sent->routing_epoch);
    keeping_->kept().Placed(header, holder);
    return holder;
  }
  const base::ErrorReason reason = base::GetReason(sent.status());
  if (reason.reason != "OUTCOME_UNKNOWN") return sent.status();
  v1::WorkHolder holder = node::HolderAt(*table, header, {}, header.attempt);
  for (const v1::Endpoint& endpoint : table->Instances(header.app, header.stage)) {
    if (endpoint.node_id() != reason.metadata.at("node_id")) continue;
    holder.set_node_id(endpoint.node_id());
    holder.set_incarnation(endpoint.incarnation());
    holder.set_routing_epoch(table->epoch());
    keeping_->kept().Placed(header, holder);
  }
  return holder;
}

absl::Status Proxy::Cancel(const base::Uid& uid) {
  v1::UpdateJobRequest request;
  request.set_uid(uid.ToString());
  request.set_cancelled(true);
  return records_->Update(request).status();
}

absl::Status Proxy::Acknowledge(const base::Uid& uid) {
  return records_->Acknowledge(uid).status();
}

absl::Status Proxy::Delete(const base::Uid& uid) { return records_->Delete(uid); }

std::string Proxy::Left() const {
  const std::size_t kept = keeping_->kept().items();
  return kept == 0 ? "" : " " + std::to_string(kept) + " messages kept";
}

}  // namespace onepiece::simulation
