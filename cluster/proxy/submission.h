// The pure half of SubmitJob: what a request must look like, and the record and message that it
// becomes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/admission/request_monitor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/message/message.h"
#include "cluster/workflow/graph.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::proxy {

/// UID of a job: from the request id and the cluster's secret, so that every proxy finds the same
/// job for the same request id and nobody else can guess it (UUIDv8, RFC 9562); without a request
/// id a fresh UUIDv7.
base::Uid MakeUid(std::string_view cluster_secret, std::string_view request_id, base::WallTime now);

/// Checks everything that needs no schema: request_id, priority, labels, deadline, number and size
/// of parameters.
/// Errors: INVALID_ARGUMENT with BAD_REQUEST_ID, BAD_PRIORITY, BAD_LABELS, BAD_DEADLINE or
/// INVALID_PARAMETERS.
absl::Status CheckEnvelope(const v1::SubmitJobRequest& request);

/// How long the job may take: what the request says, or the application's default.
base::Duration DeadlineOf(const v1::SubmitJobRequest& request, const v1::Workflow& workflow);

/// What the request monitor judges by: parameters unchecked, inputs untouched. The tenant is the
/// request's label "tenant". REQUIRES: CheckEnvelope passed.
inline constexpr char kTenantLabel[] = "tenant";
admission::Request AdmissionOf(const v1::SubmitJobRequest& request, const v1::Workflow& workflow,
                               const workflow::Graph& graph, const base::Uid& uid,
                               base::WallTime now);

using InputDigests = google::protobuf::RepeatedPtrField<v1::InputDigest>;

/// What the record keeps of the job's inputs: all but the bytes. Reads every byte once.
InputDigests DigestInputs(const v1::SubmitJobRequest& request);

/// SHA-256 over what the client asked for, inputs included, whatever its request_id. `inputs` are
/// the digests of the request's own.
std::string Fingerprint(const v1::SubmitJobRequest& request, const InputDigests& inputs);

/// The record of a new job, QUEUED at the first stage. REQUIRES: CheckEnvelope passed; the workflow
/// has stages.
v1::JobRecord MakeRecord(const v1::SubmitJobRequest& request, const v1::Workflow& workflow,
                         const base::Uid& uid, base::WallTime now, std::string_view workflow_set);

/// The message that starts the recorded job, with its inputs as artifacts. Borrows their bytes: the
/// request outlives the message.
message::Message MakeMessage(const v1::JobRecord& record, message::Parameters parameters,
                             const v1::SubmitJobRequest& request, std::uint64_t routing_epoch);

/// A job's timings in the order of its stages.
void SortTimings(const v1::Workflow* workflow, v1::Job& job);

}  // namespace onepiece::proxy
