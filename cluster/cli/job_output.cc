#include "cluster/cli/job_output.h"

#include "absl/strings/str_format.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/terminal/job_arguments.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

using google::protobuf::util::TimeUtil;

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(TimeUtil::DurationToNanoseconds(duration)) * 1e-9;
}

Json TimeOrNull(bool present, const google::protobuf::Timestamp& time) {
  return present ? Json(TimeUtil::ToString(time)) : Json(nullptr);
}

std::vector<v1::ResultArtifact> MainArtifacts(const v1::Job& job) {
  std::vector<v1::ResultArtifact> artifacts;
  for (const auto& artifact : job.result().artifacts()) {
    if (artifact.media_type() == job.result().artifacts(0).media_type())
      artifacts.push_back(artifact);
  }
  return artifacts;
}

}  // namespace

std::string StateName(v1::Job::State state) { return v1::Job::State_Name(state); }

Json JobDocument(const v1::Job& job, const std::vector<std::string>& files) {
  Json document = {{"uid", job.uid()},          {"state", StateName(job.state())},
                   {"stage", job.stage()},      {"step", job.step()},
                   {"steps", job.steps()},      {"error", nullptr},
                   {"media_type", nullptr},     {"bytes", nullptr},
                   {"sha256", nullptr},         {"timings", Json::array()},
                   {"app", job.app_id()},       {"workflow_set", job.workflow_set()},
                   {"artifacts", Json::array()}};
  if (job.has_error())
    document["error"] = {{"reason", job.error().reason()}, {"message", job.error().message()}};
  if (!job.result().artifacts().empty()) {
    const auto& main = job.result().artifacts(0);
    document["media_type"] = main.media_type();
    document["bytes"] = main.size_bytes();
    document["sha256"] = main.sha256();
  }
  for (const auto& timing : job.timings()) {
    document["timings"].push_back({{"stage", timing.stage()},
                                   {"queued_s", Seconds(timing.queued())},
                                   {"compute_s", Seconds(timing.compute())},
                                   {"transfer_s", Seconds(timing.transfer())},
                                   {"node", timing.node()}});
  }
  for (const auto& artifact : job.result().artifacts()) {
    document["artifacts"].push_back({{"artifact", artifact.artifact()},
                                     {"media_type", artifact.media_type()},
                                     {"bytes", artifact.size_bytes()},
                                     {"sha256", artifact.sha256()}});
  }
  document["inputs"] = Json::array();
  for (const auto& input : job.inputs()) {
    document["inputs"].push_back({{"name", input.name()},
                                  {"media_type", input.media_type()},
                                  {"bytes", input.size_bytes()},
                                  {"sha256", input.sha256()}});
  }
  document["fetched"] = job.result().fetched();
  document["evicted"] = job.result().evicted();
  document["create_time"] = TimeOrNull(job.has_create_time(), job.create_time());
  document["end_time"] = TimeOrNull(job.has_end_time(), job.end_time());
  if (!files.empty()) document["files"] = files;
  return document;
}

std::string JobProgressText(const v1::Job& job) {
  std::string text = StateName(job.state());
  if (job.state() == v1::Job::RUNNING && !job.stage().empty()) {
    text += " " + job.stage();
    if (job.steps() > 0) text += absl::StrFormat(" %d/%d", job.step(), job.steps());
  }
  if (job.has_error()) text += " (" + job.error().reason() + ": " + job.error().message() + ")";
  return text;
}

std::string JobText(const v1::Job& job) {
  std::string text = job.uid() + "  " + job.app_id() + "  " + JobProgressText(job) + "\n";
  for (const auto& artifact : job.result().artifacts()) {
    text +=
        absl::StrFormat("  %-16s %s, %s, sha256 %s\n", artifact.artifact(), artifact.media_type(),
                        terminal::HumanBytes(artifact.size_bytes()), artifact.sha256());
  }
  for (const auto& timing : job.timings()) {
    text += absl::StrFormat("  %-16s queued %.3f s, compute %.3f s, transfer %.4f s  (%s)\n",
                            timing.stage(), Seconds(timing.queued()), Seconds(timing.compute()),
                            Seconds(timing.transfer()), timing.node());
  }
  if (job.result().fetched()) text += "  the result has been fetched\n";
  if (job.result().evicted()) text += "  the result gave way to others when memory was short\n";
  return text;
}

void PrintJob(const Context& context, const v1::Job& job, const std::vector<std::string>& files) {
  std::string text = files.empty() ? JobText(job) : "";
  for (const auto& file : files) text += file + "\n";
  context.Print(JobDocument(job, files), text);
}

double JobShare(const v1::Job& job) {
  if (client::IsTerminal(job.state())) return 1;
  const double stages = std::max(1, job.stage_count());
  const double step = job.steps() > 0 ? static_cast<double>(job.step()) / job.steps() : 0;
  return (job.stage_index() + step) / stages;
}

int ExitCodeOfJob(const v1::Job& job) {
  if (job.state() == v1::Job::SUCCEEDED) return terminal::kOk;
  return job.error().reason() == "DEADLINE_EXCEEDED" ? terminal::kRetryLater : terminal::kFailure;
}

absl::StatusOr<std::string> ParseUid(const std::string& text) {
  const std::string uid = text.starts_with("jobs/") ? text.substr(5) : text;
  if (const auto parsed = base::Uid::Parse(uid); parsed.has_value()) return parsed->ToString();
  return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN",
                         "no job \"" + text + "\": that is not a UID");
}

absl::StatusOr<std::vector<std::string>> SaveResult(client::Client& client, const v1::Job& job,
                                                    const std::string& path) {
  if (job.state() != v1::Job::SUCCEEDED) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "JOB_NOT_SUCCEEDED",
        "job " + job.uid() + " is " + JobProgressText(job) + ": there is no result to fetch");
  }
  std::vector<std::string> files;
  const auto artifacts = MainArtifacts(job);
  for (std::size_t i = 0; i < artifacts.size(); ++i) {
    files.push_back(terminal::NumberedPath(path, i, artifacts.size()));
    ONEPIECE_RETURN_IF_ERROR(
        client.FetchToFile(job.uid(), artifacts[i].artifact(), files.back()).status());
  }
  // Only now, because the cluster purges the bytes of an acknowledged result.
  ONEPIECE_RETURN_IF_ERROR(client.Acknowledge(job.uid()).status());
  return files;
}

}  // namespace onepiece::cli
