#include "cluster/proxy/submission.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/check.h"
#include "cluster/base/seconds.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/job/job_record.h"
#include "cluster/node/work_holder.h"
#include "cluster/proxy/cancel_work.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/workflow/input_check.h"
#include "cluster/workflow/parameter_check.h"
#include "cluster/workflow/work_units.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

constexpr int kMaxPriority = 100;
constexpr int kMaxLabels = 32;
constexpr std::size_t kMaxLabelKeyBytes = 63;
constexpr std::size_t kMaxLabelValueBytes = 256;
constexpr std::chrono::seconds kMaxDeadline = 24h;
constexpr int kMaxParameters = 256;
constexpr std::int64_t kMaxParameterBytes = std::int64_t{1} << 20;
// A job of the largest size must fit into a message, so that a larger one reaches the checks that
// name the error.
static_assert(workflow::kMaxInputBytes + 4 * kMaxParameterBytes < rpc::kMaxMessageBytes);
constexpr int kDefaultDeadlineS = 600;
constexpr int kDefaultResultTtlS = 3600;
/// The time to deliver into the entrance rings.
constexpr base::Duration kDeliverTimeout = 1500ms;
/// How long a call waits for another one that starts the same job: longer than a claim that is not
/// renewed (JobStoreOptions::start_lease), so that the job of a proxy that died is started here.
constexpr base::Duration kTurnTimeout = 2500ms;
constexpr base::Duration kTurnPoll = 20ms;
/// These bound what refused jobs may ask of the databases, so that a proxy's overload does not
/// become theirs.
constexpr std::ptrdiff_t kLookUpsAtOnce = 8;
constexpr base::Duration kLookUpTimeout = 300ms;

absl::Status Bad(std::string_view reason, std::string_view field, const std::string& why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         fmt::format("{}: {}", field, why), {{"field", std::string(field)}});
}

absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels)
    return Bad("BAD_LABELS", "labels", fmt::format("at most {}", kMaxLabels));
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > kMaxLabelKeyBytes || value.size() > kMaxLabelValueBytes) {
      return Bad("BAD_LABELS", "labels",
                 fmt::format("keys have 1 to {} bytes, values at most {}", kMaxLabelKeyBytes,
                             kMaxLabelValueBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status StageUnserved(absl::StatusCode code, const std::string& app, const std::string& stage,
                           std::map<std::string, std::string> metadata) {
  metadata["app_id"] = app;
  metadata["stage"] = stage;
  return base::MakeError(code, "STAGE_UNSERVED",
                         "no instance serves stage " + stage + " of application " + app,
                         std::move(metadata));
}

absl::Status CheckEntrances(const node::Routing& routing, const std::string& app) {
  for (const std::string& stage : routing.GraphOf(app).Entrances()) {
    if (!routing.Instances(app, stage).empty()) continue;
    return StageUnserved(absl::StatusCode::kUnavailable, app, stage, {{rpc::kRetryAfterMs, "500"}});
  }
  return absl::OkStatus();
}

/// Says it when a refusal for want of room means that a stage has no instance at all. The request
/// monitor knows pools only, and has counted the demand, which may bring an instance.
absl::Status ExplainRefusal(const absl::Status& refusal, const node::Routing& routing,
                            const v1::Workflow& workflow) {
  const base::ErrorReason reason = base::GetReason(refusal);
  if (reason.reason != "OVERLOADED") return refusal;
  for (const v1::StageSpec& stage : workflow.stages()) {
    if (routing.Instances(workflow.app_id(), stage.stage()).empty())
      return StageUnserved(refusal.code(), workflow.app_id(), stage.stage(), reason.metadata);
  }
  return refusal;
}

bool IsPlaced(const v1::JobRecord& record, const std::string& entrance) {
  return std::ranges::any_of(record.holders(), [&](const v1::WorkHolder& holder) {
    return (holder.from().empty() && holder.stage() == entrance) || holder.from() == entrance;
  });
}

/// Returns the entrances of the job's workflow for which no holder is known.
std::vector<std::string> Unplaced(const node::Routing& routing, const v1::JobRecord& record) {
  std::vector<std::string> stages;
  if (record.deleted() || job::IsTerminal(record.job().state())) return stages;
  const auto entrances = routing.GraphOf(record.job().app_id()).Entrances();
  // With one entrance every sign of life comes from it, even when a database has forgotten the
  // holder.
  if (entrances.size() == 1 &&
      (record.job().state() != v1::Job::QUEUED || !record.holders().empty())) {
    return stages;
  }
  for (const std::string& stage : entrances) {
    if (!IsPlaced(record, stage)) stages.push_back(stage);
  }
  return stages;
}

/// Returns true when no instance was given the job: its proxy died, or found no instance. The job
/// starts when its client submits it again.
bool IsOrphan(const v1::JobRecord& record) {
  return !record.deleted() && record.job().state() == v1::Job::QUEUED && record.holders().empty();
}

/// Copies the inputs, which the request owns, so that the message may outlive it.
void OwnInputs(message::Message& message) {
  for (message::Artifact& artifact : message.artifacts)
    artifact.data = message::Buffer::FromString(std::string(artifact.data.text()));
}

std::int64_t InputBytes(const v1::SubmitJobRequest& request) {
  std::int64_t bytes = 0;
  for (const v1::JobInput& input : request.inputs())
    bytes += static_cast<std::int64_t>(input.data().size());
  return bytes;
}

absl::Status RequestIdReused(const v1::SubmitJobRequest& request) {
  return base::MakeError(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                         "another job was submitted under this request_id",
                         {{"request_id", request.request_id()}});
}

prometheus::Histogram& DecisionSeconds(telemetry::Metrics& metrics, const char* outcome) {
  // A rejection takes microseconds, an admission some round trips.
  return metrics.Histogram("onepiece_admission_seconds", "Time to admit or reject a job",
                           {1e-5, 2e-5, 3e-5, 5e-5, 7.5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4,
                            1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 0.1,  0.25,   0.5,  1,    2.5},
                           {{"outcome", outcome}});
}

/// The answer when a job that has a record is not started now. It must neither send the client to
/// another set (RING_FULL would) nor be one that is also given before there is a record (as
/// STAGE_UNSERVED is).
absl::Status NotStarted(const std::string& why, const std::string& stage = "") {
  std::map<std::string, std::string> metadata{{rpc::kRetryAfterMs, "500"}};
  if (!stage.empty()) metadata.emplace("stage", stage);
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_STARTED", why, std::move(metadata));
}

absl::Status NotRegistered() {
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_REGISTERED",
                         "this proxy has not joined its cluster yet",
                         {{rpc::kRetryAfterMs, "500"}});
}

}  // namespace

base::Uid MakeUid(std::string_view cluster_secret, std::string_view tenant,
                  std::string_view request_id, base::WallTime now) {
  if (request_id.empty()) return base::Uid::Generate(base::ToUnixMs(now));
  // A UUID may be written in either case, and the same id must give the same job.
  const auto parsed = base::Uid::Parse(request_id);
  std::string canonical = parsed.has_value() ? parsed->ToString() : std::string(request_id);
  // Jobs of the default tenant keep the uids that they had before there were tenants, so that a
  // request that is repeated over an upgrade finds its job. No tenant's name has a NUL.
  if (tenant != identity::kDefaultTenant) {
    canonical += '\0';
    canonical += tenant;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned int mac_bytes = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), cluster_secret.data(), static_cast<int>(cluster_secret.size()),
           reinterpret_cast<const unsigned char*>(canonical.data()), canonical.size(), mac.data(),
           &mac_bytes);
  ONEPIECE_CHECK(made != nullptr && mac_bytes >= 16);
  std::array<std::uint8_t, 16> bytes;
  std::copy_n(mac.begin(), bytes.size(), bytes.begin());
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0f) | 0x80);
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3f) | 0x80);
  return base::Uid(bytes);
}

absl::Status CheckEnvelope(const v1::SubmitJobRequest& request) {
  if (!request.request_id().empty() && !base::Uid::Parse(request.request_id()).has_value()) {
    return Bad("BAD_REQUEST_ID", "request_id", "must be a UUID");
  }
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return Bad("BAD_PRIORITY", "priority", fmt::format("must be -{0} to {0}", kMaxPriority));
  }
  if (request.has_deadline()) {
    const auto& deadline = request.deadline();
    const bool valid = deadline.seconds() >= 0 && deadline.seconds() <= kMaxDeadline.count() &&
                       deadline.nanos() >= 0 && deadline.nanos() < 1'000'000'000;
    if (!valid) {
      return Bad("BAD_DEADLINE", "deadline",
                 fmt::format("must be 0 to {} s", kMaxDeadline.count()));
    }
  }
  ONEPIECE_RETURN_IF_ERROR(CheckLabels(request.labels()));
  if (request.parameters().fields_size() > kMaxParameters ||
      static_cast<std::int64_t>(request.parameters().ByteSizeLong()) > kMaxParameterBytes) {
    return Bad("INVALID_PARAMETERS", "parameters",
               fmt::format("at most {} of {} bytes together", kMaxParameters, kMaxParameterBytes));
  }
  return absl::OkStatus();
}

base::Duration DeadlineOf(const v1::SubmitJobRequest& request, const v1::Workflow& workflow) {
  const base::Duration asked = std::chrono::seconds(request.deadline().seconds()) +
                               std::chrono::nanoseconds(request.deadline().nanos());
  if (asked > 0ns) return asked;
  return std::chrono::seconds(workflow.default_deadline_s() > 0 ? workflow.default_deadline_s()
                                                                : kDefaultDeadlineS);
}

Submitter SubmitterOf(const rpc::Caller& caller, const v1::SubmitJobRequest& request) {
  const auto label = request.labels().find("tenant");
  const bool labelled = caller.insecure() && label != request.labels().end();
  return {.tenant = caller.tenant(), .share = labelled ? label->second : caller.tenant()};
}

admission::AdmissionRequest AdmissionOf(const v1::SubmitJobRequest& request,
                                        const std::string& share, const v1::Workflow& workflow,
                                        const workflow::Graph& graph, const base::Uid& uid,
                                        base::WallTime now) {
  admission::AdmissionRequest asked;
  asked.uid = uid;
  asked.app_id = workflow.app_id();
  asked.tenant = share;
  asked.priority = request.priority();
  asked.deadline = now + DeadlineOf(request, workflow);
  asked.stages.reserve(static_cast<std::size_t>(workflow.stages_size()));
  for (const v1::StageSpec& stage : workflow.stages()) {
    const auto after = graph.Predecessors(stage.stage());
    asked.stages.push_back({.stage = stage.stage(),
                            .units = workflow::WorkUnits(workflow, stage, request.parameters()),
                            .after = {after.begin(), after.end()},
                            .terms = workflow::WorkTerms(workflow, stage, request.parameters())});
  }
  return asked;
}

InputDigests DigestInputs(const v1::SubmitJobRequest& request) {
  InputDigests digests;
  for (const v1::JobInput& input : request.inputs()) {
    v1::InputDigest& digest = *digests.Add();
    digest.set_name(input.name());
    digest.set_media_type(input.media_type());
    digest.set_size_bytes(static_cast<std::int64_t>(input.data().size()));
    digest.set_sha256(base::Sha256Hex(input.data()));
  }
  return digests;
}

std::string Fingerprint(const v1::SubmitJobRequest& request, const InputDigests& inputs) {
  // Copies field by field, because a copy of the request would copy the bytes of its inputs.
  v1::SubmitJobRequest asked;
  asked.set_app_id(request.app_id());
  *asked.mutable_parameters() = request.parameters();
  if (request.has_deadline()) *asked.mutable_deadline() = request.deadline();
  asked.set_priority(request.priority());
  *asked.mutable_labels() = request.labels();
  for (const v1::InputDigest& digest : inputs) {
    v1::JobInput& input = *asked.add_inputs();
    input.set_name(digest.name());
    input.set_media_type(digest.media_type());
    input.set_data(digest.sha256());
  }
  return base::Sha256Hex(base::CanonicalBytes(asked));
}

v1::JobRecord MakeRecord(const v1::SubmitJobRequest& request, const std::string& tenant,
                         const v1::Workflow& workflow, const base::Uid& uid, base::WallTime now,
                         std::string_view workflow_set) {
  ONEPIECE_CHECK(workflow.stages_size() > 0);
  v1::JobRecord record;
  v1::Job& job = *record.mutable_job();
  job.set_uid(uid.ToString());
  job.set_name("jobs/" + job.uid());
  job.set_app_id(workflow.app_id());
  job.set_tenant(tenant);
  job.set_state(v1::Job::QUEUED);
  job.set_stage(workflow.stages(0).stage());
  job.set_stage_count(workflow.stages_size());
  *job.mutable_create_time() = job::ToTimestamp(now);
  job::SetTimeLimit(DeadlineOf(request, workflow), now, record);
  job.set_request_id(request.request_id());
  *job.mutable_parameters() = request.parameters();
  *job.mutable_labels() = request.labels();
  job.set_workflow_set(std::string(workflow_set));
  job.set_priority(request.priority());
  *job.mutable_inputs() = DigestInputs(request);
  record.set_fingerprint(Fingerprint(request, job.inputs()));
  record.set_result_ttl_s(workflow.result_ttl_s() > 0 ? workflow.result_ttl_s()
                                                      : kDefaultResultTtlS);
  return record;
}

message::Message MakeMessage(const v1::JobRecord& record, message::Parameters parameters,
                             const v1::SubmitJobRequest& request, std::uint64_t routing_epoch,
                             base::MonotonicTime now) {
  message::Message message;
  const v1::Job& job = record.job();
  message.header.kind = message::Kind::kWork;
  message.header.uid = base::Uid::Parse(job.uid()).value_or(base::Uid());
  message.header.app = job.app_id();
  message.header.stage = job.stage();
  message.header.run = job::RunToStart(record);
  message.header.priority = job.priority();
  message.header.routing_epoch = routing_epoch;
  message.header.ingress_time = job::FromTimestamp(job.create_time());
  message.header.deadline = now + job::FromProto(record.time_left());
  message.parameters = std::move(parameters);
  for (const v1::JobInput& input : request.inputs()) {
    const auto bytes = std::as_bytes(std::span(input.data()));
    message.artifacts.push_back({.name = input.name(),
                                 .dtype = message::DType::kBytes,
                                 .shape = {static_cast<std::int64_t>(bytes.size())},
                                 .media_type = input.media_type(),
                                 .data = message::Buffer(nullptr, bytes)});
  }
  return message;
}

Submission::Submission(const node::ClusterView& view, SubmissionOptions options,
                       node::JobRecords& records, node::Outbox& outbox,
                       admission::RequestMonitor& monitor, TenantAccounts& accounts,
                       ChannelCache& channels, telemetry::Metrics& metrics, telemetry::Spans& spans,
                       base::Clock& clock)
    : view_(view),
      options_(std::move(options)),
      records_(records),
      outbox_(outbox),
      monitor_(monitor),
      accounts_(accounts),
      channels_(channels),
      metrics_(metrics),
      spans_(spans),
      clock_(clock),
      admitted_seconds_(DecisionSeconds(metrics, "admitted")),
      rejected_seconds_(DecisionSeconds(metrics, "rejected")),
      failed_seconds_(DecisionSeconds(metrics, "failed")),
      inputs_(options_.max_input_bytes),
      look_ups_(kLookUpsAtOnce) {}

absl::StatusOr<v1::Job> Submission::StartJob(const v1::SubmitJobRequest& request,
                                             const Submitter& who, bool repeated) {
  const base::MonotonicTime start = clock_.Now();
  absl::StatusOr<v1::Job> job = Decide(request, who, repeated);
  CountDecision(job.status(), clock_.Now() - start);
  return job;
}

absl::StatusOr<v1::Job> Submission::Decide(const v1::SubmitJobRequest& request,
                                           const Submitter& who, bool repeated) {
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  const v1::Workflow* workflow = routing->FindWorkflow(request.app_id());
  if (workflow == nullptr || workflow->stages_size() == 0) {
    if (routing->epoch() == 0) return NotRegistered();  // Not one application is known yet.
    return base::MakeError(absl::StatusCode::kNotFound, "APP_UNKNOWN",
                           "no application \"" + request.app_id() + "\"",
                           {{"app_id", request.app_id()}});
  }
  ONEPIECE_RETURN_IF_ERROR(CheckEnvelope(request));
  Order order{.request = request,
              .who = who,
              .routing = routing,
              .workflow = *workflow,
              .start = clock_.WallNow(),
              .uid = {}};
  if (request.validate_only()) return Validate(order);
  const std::string secret = view_.cluster_secret();
  if (secret.empty()) return NotRegistered();
  order.uid = MakeUid(secret, who.tenant, request.request_id(), order.start);
  const absl::StatusOr<bool> counted = accounts_.Admit(who.tenant, order.uid);
  if (!counted.ok()) return repeated ? FindKnown(order, counted.status()) : counted.status();
  absl::Cleanup withdraw = [&] {
    if (*counted) accounts_.Withdraw(order.uid);
  };
  // A rejection must stay cheap, so the inputs are still untouched and the parameters unchecked.
  const absl::Status admitted = monitor_.Admit(AdmissionOf(
      request, who.share, *workflow, routing->GraphOf(workflow->app_id()), order.uid, order.start));
  if (!admitted.ok()) {
    const absl::Status why = ExplainRefusal(admitted, *routing, *workflow);
    return repeated ? FindKnown(order, why) : why;
  }
  absl::StatusOr<v1::Job> job = Admit(order);
  // A job that another call has begun was paid for by that call.
  if (order.begun) {
    monitor_.Keep(order.uid);
    std::move(withdraw).Cancel();
  } else {
    monitor_.Withdraw(order.uid);
  }
  return job;
}

absl::Status Submission::Prepare(Order& order) {
  const v1::SubmitJobRequest& request = order.request;
  ONEPIECE_RETURN_IF_ERROR(workflow::CheckInputs(order.workflow, request.inputs()));
  order.inputs.emplace(inputs_, InputBytes(request));
  ONEPIECE_RETURN_IF_ERROR(order.inputs->status());
  if (!request.validate_only())
    ONEPIECE_RETURN_IF_ERROR(CheckEntrances(*view_.routing(), order.workflow.app_id()));
  ONEPIECE_ASSIGN_OR_RETURN(order.parameters,
                            workflow::CheckParameters(order.workflow, request.parameters()));
  order.wanted = MakeRecord(request, order.who.tenant, order.workflow, order.uid, order.start,
                            options_.workflow_set);
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> Submission::Validate(Order& order) {
  ONEPIECE_RETURN_IF_ERROR(Prepare(order));
  v1::Job job = std::move(*order.wanted.mutable_job());
  job.clear_uid();
  job.clear_name();
  return job;
}

absl::StatusOr<v1::Job> Submission::Admit(Order& order) {
  const v1::SubmitJobRequest& request = order.request;
  telemetry::ScopedSpan span(spans_, order.uid, "admit");
  ONEPIECE_RETURN_IF_ERROR(Prepare(order));
  StartClaim claim([this](const v1::ClaimStartRequest& wanted) { return records_.Claim(wanted); },
                   view_.self(), clock_);
  *order.wanted.mutable_lease() = claim.ForNewJob();
  const base::MonotonicTime asked = clock_.Now();
  ONEPIECE_ASSIGN_OR_RETURN(v1::CreateJobResponse created, records_.Create(order.wanted));
  v1::JobRecord record = std::move(*created.mutable_record());
  claim.Note(record, asked);
  // A client that was told of its job must find it after the death of one database. The copy is on
  // its way while the work is placed.
  const std::unique_ptr<node::RecordCopy> copy = records_.Copy(record);
  if (!created.created() || !claim.holds()) {
    if (record.fingerprint() != order.wanted.fingerprint()) return RequestIdReused(request);
    ONEPIECE_ASSIGN_OR_RETURN(record, AwaitTurn(claim, std::move(record)));
    if (record.deleted()) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "JOB_DELETED",
                             "the job of this request_id was deleted",
                             {{"request_id", request.request_id()}});
    }
    span.Set("known", "true");
    if (Unplaced(*view_.routing(), record).empty()) {
      if (copy != nullptr) copy->Await();
      CountAnswer("known");
      return job::PublicJob(record);
    }
  }
  absl::StatusOr<v1::JobRecord> started = Start(order, claim, record);
  if (!started.ok()) {
    claim.Release(record.job().uid());
    // With a request_id the record stays: the client's retry finds the job and starts what has not
    // begun. Without one nobody could ask for the job again, and a message that can never be sent
    // makes every retry fail, so such a record goes.
    const bool hopeless = absl::IsInvalidArgument(started.status());
    if (hopeless || request.request_id().empty()) (void)records_.Delete(order.uid);
    return started.status();
  }
  if (copy != nullptr) copy->Await();
  order.begun = true;
  CountAnswer("admitted");
  return job::PublicJob(*started);
}

// A refused job may be one that another proxy, or an earlier life of this one, has admitted. Asks a
// database, but only for calls that say that they are repeated, and for few at a time. The others
// are refused without a look; their clients retry.
absl::StatusOr<v1::Job> Submission::FindKnown(const Order& order, const absl::Status& refused) {
  if (order.request.request_id().empty() || !look_ups_.try_acquire()) return refused;
  const absl::Cleanup done = [this] { look_ups_.release(); };
  const absl::StatusOr<v1::JobRecord> record = records_.Get(order.uid, kLookUpTimeout);
  if (!record.ok() || record->deleted()) return refused;
  if (!Unplaced(*view_.routing(), *record).empty()) return refused;  // No instance has it yet.
  if (record->fingerprint() != Fingerprint(order.request, DigestInputs(order.request)))
    return RequestIdReused(order.request);
  CountAnswer("known");
  return job::PublicJob(*record);
}

absl::StatusOr<v1::JobRecord> Submission::Start(Order& order, StartClaim& claim,
                                                const v1::JobRecord& record) {
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  message::Message message = MakeMessage(record, std::move(order.parameters), order.request,
                                         routing->epoch(), clock_.Now());
  if (options_.kept != nullptr) OwnInputs(message);
  const base::MonotonicTime deadline = clock_.Now() + base::Scaled(kDeliverTimeout);
  v1::UpdateJobRequest update;
  update.set_uid(record.job().uid());
  const std::vector<std::string> stages = Unplaced(*routing, record);
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    message.header.stage = *stage;
    absl::Status status = KeepClaim(claim, update.uid());
    if (status.ok()) {
      // No delivery outlives the claim, or another proxy could deliver at the same time.
      auto holder = SendTo(*routing, message, std::min(deadline, claim.until()));
      if (holder.ok()) *update.add_placed() = *std::move(holder);
      status = holder.status();
    }
    if (!status.ok()) return GiveUp(record, update, message, {stage, stages.end()}, status);
  }
  return NotePlaced(update, record);
}

// Renews the claim in time. While no database answers, it lasts as long as it was taken for.
absl::Status Submission::KeepClaim(StartClaim& claim, const std::string& uid) {
  if (!claim.is_due()) return absl::OkStatus();
  const absl::StatusOr<v1::ClaimStartResponse> answer = claim.Take(uid);
  if (claim.holds()) return absl::OkStatus();
  return answer.ok() ? NotStarted("another proxy starts the job") : answer.status();
}

// Writes down who has the messages that are out.
absl::StatusOr<v1::JobRecord> Submission::NotePlaced(const v1::UpdateJobRequest& update,
                                                     const v1::JobRecord& record) {
  v1::UpdateJobRequest known = update;
  // It is not known which instance has such a message.
  auto& placed = *known.mutable_placed();
  placed.erase(
      std::remove_if(placed.begin(), placed.end(),
                     [](const v1::WorkHolder& holder) { return holder.node_id().empty(); }),
      placed.end());
  if (placed.empty()) return record;
  absl::StatusOr<v1::JobRecord> updated = records_.Update(known);
  if (!updated.ok()) {
    // The job runs; its instances write the record too.
    spdlog::warn("op=admit uid={} the record does not say where the job is: {}", update.uid(),
                 base::View(updated.status().message()));
    return record;
  }
  return updated;
}

// Sends a new job's message to an entrance. The holder names no node when it is not known which
// instance has the message.
absl::StatusOr<v1::WorkHolder> Submission::SendTo(const node::Routing& routing,
                                                  message::Message& message,
                                                  base::MonotonicTime deadline) {
  const message::Header& header = message.header;
  if (options_.kept != nullptr) options_.kept->Keep(message);
  const absl::StatusOr<node::Delivered> sent = outbox_.Deliver(
      message, node::Destination::Stage(header.app, header.stage, header.uid), deadline);
  if (sent.ok()) {
    v1::WorkHolder holder = node::HolderAt(routing, header, *sent);
    if (options_.kept != nullptr) options_.kept->Placed(header, holder);
    return holder;
  }
  const base::ErrorReason reason = base::GetReason(sent.status());
  if (reason.reason != "OUTCOME_UNKNOWN") {
    if (options_.kept != nullptr) options_.kept->Forget(header);
    return sent.status();
  }
  spdlog::warn("op=admit uid={} {}", header.uid.ToString(), base::View(sent.status().message()));
  // The message may have arrived. If it has, that instance reports the job. If not, it is sent
  // again, where it is kept; else the instance's death or the deadline ends the job.
  v1::WorkHolder holder = node::HolderAt(routing, header, {}, header.attempt);
  if (options_.kept != nullptr && options_.kept->Doubt(header)) return holder;
  const auto named = reason.metadata.find("node_id");
  for (const v1::Endpoint& endpoint : routing.Instances(header.app, header.stage)) {
    if (named == reason.metadata.end() || endpoint.node_id() != named->second) continue;
    holder.set_node_id(endpoint.node_id());
    holder.set_incarnation(endpoint.incarnation());
    holder.set_routing_epoch(routing.epoch());
  }
  return holder;
}

// Another proxy may have started the job too, while the two were cut off from each other. If its
// run is the smaller one, that gives way to this one wherever they meet. So this proxy completes
// what it has begun, whether its client asks again or not.
void Submission::KeepRest(message::Message message, std::span<const std::string> stages) {
  if (options_.kept == nullptr) return;
  for (const std::string& stage : stages) {
    message.header.stage = stage;
    options_.kept->Keep(message);
    (void)options_.kept->Doubt(message.header);
  }
}

// No instance of the first of these entrances took the job. Work that other entrances have begun
// stays, and the client's retry starts the rest in the same run, or this proxy does. But nobody can
// ask again for a job without a request_id, whose client has not learned its name, nor start one
// whose message no ring can hold: such a job fails, and its work is called back, because it would
// be computed for nothing.
absl::Status Submission::GiveUp(const v1::JobRecord& record, const v1::UpdateJobRequest& placed,
                                const message::Message& message,
                                std::span<const std::string> stages, const absl::Status& status) {
  const std::string& stage = stages.front();
  // A message that is out counts, whether its outcome is known or not.
  const bool begun = !record.holders().empty() || !placed.placed().empty();
  const bool hopeless = absl::IsInvalidArgument(status);
  if (begun && !hopeless && !record.job().request_id().empty()) {
    (void)NotePlaced(placed, record);
    KeepRest(message, stages);
  } else if (begun) {
    v1::UpdateJobRequest update;
    update.set_uid(record.job().uid());
    update.mutable_failed()->set_reason("NOT_STARTED");
    update.mutable_failed()->set_message("stage " + stage +
                                         " did not take the job: " + base::Message(status));
    if (const auto failed = records_.Update(update); !failed.ok()) {
      spdlog::warn("op=admit uid={} the record does not say that the job failed: {}", update.uid(),
                   base::View(failed.status().message()));
    }
    CancelWork(record.job(), *view_.routing(), channels_);
  }
  if (hopeless) return status;  // Admit() deletes the record.
  return NotStarted("stage " + stage + " does not take the job now: " + base::Message(status),
                    stage);
}

// Waits until this call has the claim, or the job needs no start any more. Another call that works
// on it renews its claim, so a claim that runs out has lost its proxy.
absl::StatusOr<v1::JobRecord> Submission::AwaitTurn(StartClaim& claim, v1::JobRecord record) {
  const base::MonotonicTime until = clock_.Now() + base::Scaled(kTurnTimeout);
  const auto uid = base::Uid::Parse(record.job().uid());
  if (!uid.has_value()) return absl::DataLossError("a record without a uid");
  while (!Unplaced(*view_.routing(), record).empty() && !claim.holds()) {
    if (claim.IsOf(record) || !record.lease().has_time_left()) {
      ONEPIECE_ASSIGN_OR_RETURN(v1::ClaimStartResponse answer, claim.Take(record.job().uid()));
      record = std::move(*answer.mutable_record());
      if (claim.holds()) break;
    }
    if (clock_.Now() >= until || !clock_.Pause(stopping_.get_token(), kTurnPoll))
      return NotStarted("another proxy starts the job, or no database answers in time");
    ONEPIECE_ASSIGN_OR_RETURN(record, records_.Get(*uid));
  }
  return record;
}

// Another call may be starting the job: waits until it has, or its claim has run out.
absl::StatusOr<v1::JobRecord> Submission::AwaitHolder(v1::JobRecord record) {
  const base::MonotonicTime until = clock_.Now() + base::Scaled(kTurnTimeout);
  const auto uid = base::Uid::Parse(record.job().uid());
  while (!Unplaced(*view_.routing(), record).empty() && record.lease().has_time_left() &&
         uid.has_value() && clock_.Now() < until) {
    if (!clock_.Pause(stopping_.get_token(), kTurnPoll)) break;
    ONEPIECE_ASSIGN_OR_RETURN(record, records_.Get(*uid));
  }
  return record;
}

absl::StatusOr<v1::Job> Submission::LookUp(const std::string& tenant,
                                           const std::string& request_id) {
  const std::string secret = view_.cluster_secret();
  if (secret.empty()) return NotRegistered();
  absl::StatusOr<v1::JobRecord> record =
      records_.Get(MakeUid(secret, tenant, request_id, clock_.WallNow()));
  if (record.ok()) record = AwaitHolder(*std::move(record));
  // A deleted job is known. If this call said that it is not, another set would make it again.
  if (!record.ok() && !base::GetReason(record.status()).metadata.contains("deleted"))
    return record.status();
  // Any set may start an orphan, and another set may have done so already.
  if (record.ok() && IsOrphan(*record)) {
    return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN",
                           "the job of this request_id has begun nowhere here",
                           {{"request_id", request_id}});
  }
  v1::Job job;
  job.set_request_id(request_id);
  job.set_workflow_set(options_.workflow_set);
  return job;
}

void Submission::CountAnswer(const std::string& result) {
  metrics_.Counter("onepiece_jobs_total", "Answers to SubmitJob", {{"result", result}}).Increment();
}

void Submission::CountDecision(const absl::Status& status, base::Duration taken) {
  const bool rejected = absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status);
  if (!status.ok()) {
    const std::string reason = base::GetReason(status).reason;
    CountAnswer(reason.empty() ? absl::StatusCodeToString(status.code()) : reason);
  }
  (status.ok() ? admitted_seconds_
   : rejected  ? rejected_seconds_
               : failed_seconds_)
      .Observe(base::ToSeconds(taken));
}

}  // namespace onepiece::proxy
