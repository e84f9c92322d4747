#include "cluster/proxy/submission.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/check.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/job/job_record.h"
#include "cluster/rpc/server.h"
#include "cluster/workflow/input_check.h"
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
// A job of the largest size must reach the checks that would refuse a larger one by name.
static_assert(workflow::kMaxInputBytes + 4 * kMaxParameterBytes < rpc::kMaxMessageBytes);
constexpr int kDefaultDeadlineS = 600;
constexpr int kDefaultResultTtlS = 3600;

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

}  // namespace

base::Uid MakeUid(std::string_view cluster_secret, std::string_view request_id,
                  base::WallTime now) {
  if (request_id.empty()) return base::Uid::Generate(base::ToUnixMs(now));
  // A UUID may be written in either case: the same id must give the same job.
  const auto parsed = base::Uid::Parse(request_id);
  const std::string canonical = parsed.has_value() ? parsed->ToString() : std::string(request_id);
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

admission::Request AdmissionOf(const v1::SubmitJobRequest& request, const v1::Workflow& workflow,
                               const workflow::Graph& graph, const base::Uid& uid,
                               base::WallTime now) {
  admission::Request asked;
  asked.uid = uid;
  asked.app_id = workflow.app_id();
  if (const auto tenant = request.labels().find(kTenantLabel); tenant != request.labels().end())
    asked.tenant = tenant->second;
  asked.priority = request.priority();
  asked.deadline = now + DeadlineOf(request, workflow);
  asked.stages.reserve(static_cast<std::size_t>(workflow.stages_size()));
  for (const v1::StageSpec& stage : workflow.stages()) {
    const auto after = graph.Predecessors(stage.stage());
    asked.stages.push_back({.stage = stage.stage(),
                            .units = workflow::WorkUnits(workflow, stage, request.parameters()),
                            .after = {after.begin(), after.end()}});
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
  // Field by field: a copy of the request would copy the bytes of its inputs.
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

v1::JobRecord MakeRecord(const v1::SubmitJobRequest& request, const v1::Workflow& workflow,
                         const base::Uid& uid, base::WallTime now, std::string_view workflow_set) {
  ONEPIECE_CHECK(workflow.stages_size() > 0);
  v1::JobRecord record;
  v1::Job& job = *record.mutable_job();
  job.set_uid(uid.ToString());
  job.set_name("jobs/" + job.uid());
  job.set_app_id(workflow.app_id());
  job.set_state(v1::Job::QUEUED);
  job.set_stage(workflow.stages(0).stage());
  job.set_stage_count(workflow.stages_size());
  *job.mutable_create_time() = job::ToTimestamp(now);
  *job.mutable_deadline() = job::ToTimestamp(now + DeadlineOf(request, workflow));
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
                             const v1::SubmitJobRequest& request, std::uint64_t routing_epoch) {
  message::Message message;
  const v1::Job& job = record.job();
  message.header.kind = message::Kind::kWork;
  message.header.uid = base::Uid::Parse(job.uid()).value_or(base::Uid());
  message.header.app = job.app_id();
  message.header.stage = job.stage();
  message.header.priority = job.priority();
  message.header.routing_epoch = routing_epoch;
  message.header.ingress_time = job::FromTimestamp(job.create_time());
  message.header.deadline = job::FromTimestamp(job.deadline());
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

void SortTimings(const v1::Workflow* workflow, v1::Job& job) {
  if (workflow == nullptr) return;
  const auto rank = [&](const v1::StageTiming& timing) {
    int index = 0;
    while (index < workflow->stages_size() && workflow->stages(index).stage() != timing.stage())
      ++index;
    return index;
  };
  std::stable_sort(
      job.mutable_timings()->begin(), job.mutable_timings()->end(),
      [&](const v1::StageTiming& a, const v1::StageTiming& b) { return rank(a) < rank(b); });
}

}  // namespace onepiece::proxy
