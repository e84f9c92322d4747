// The verbs get, jobs, watch, cancel and delete.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/cli/job_list.h"
#include "cluster/cli/job_output.h"
#include "cluster/cli/verbs.h"
#include "cluster/telemetry/spans.h"
#include "cluster/terminal/interrupt.h"
#include "cluster/terminal/progress_bar.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

struct JobVerbArguments {
  std::string uid, output, trace;
  JobFilter filter;
  int limit = 20;
};

absl::Status SaveTrace(const Context& context, client::Client& client, const std::string& uid,
                       const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::GetJobTraceResponse trace, client.Trace(uid));
  for (const auto& node : trace.unreachable_nodes()) context.Say("onepiece: no spans from " + node);
  const std::vector<v1::Span> spans(trace.spans().begin(), trace.spans().end());
  std::ofstream file(path, std::ios::trunc);
  file << telemetry::WriteChromeTrace(spans);
  file.close();
  if (file) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                         "cannot write " + path);
}

int RunGet(const Context& context, client::Client& client, const JobVerbArguments& arguments) {
  const auto job = client.Get(arguments.uid);
  if (!job.ok()) return context.Fail(job.status());
  std::vector<std::string> files;
  if (!arguments.trace.empty()) {
    const absl::Status saved = SaveTrace(context, client, job->uid(), arguments.trace);
    if (!saved.ok()) return context.Fail(saved);
  }
  if (!arguments.output.empty()) {
    auto saved = SaveResult(client, *job, arguments.output);
    if (!saved.ok()) return context.Fail(saved.status());
    files = *std::move(saved);
  }
  PrintJob(context, *job, files);
  return terminal::kOk;
}

int RunWatch(const Context& context, client::Client& client, const JobVerbArguments& arguments,
             std::stop_token stop) {
  absl::StatusOr<v1::Job> job;
  {
    terminal::ProgressBar bar(context);
    job = client.Watch(
        arguments.uid,
        [&](const v1::Job& now) {
          bar.Show(JobShare(now), JobProgressText(now));
          return true;
        },
        // A job has its own deadline. This limit ends the watch even if a server never tells of the
        // end.
        base::SystemClock().Now() + std::chrono::hours(24), stop);
  }
  if (!job.ok()) return context.Fail(job.status());
  PrintJob(context, *job);
  return ExitCodeOfJob(*job);
}

int RunCancel(const Context& context, client::Client& client, const JobVerbArguments& arguments) {
  const auto job = client.Cancel(arguments.uid);
  if (!job.ok()) return context.Fail(job.status());
  PrintJob(context, *job);
  if (job->state() == v1::Job::CANCELLED) return terminal::kOk;
  context.Say("onepiece: the job has ended already");
  return terminal::kPrecondition;
}

int RunDelete(const Context& context, client::Client& client, const JobVerbArguments& arguments) {
  const absl::Status status = client.Delete(arguments.uid);
  if (!status.ok()) return context.Fail(status);
  context.Print({{"uid", arguments.uid}, {"deleted", true}}, "Deleted " + arguments.uid);
  return terminal::kOk;
}

int RunJobs(const Context& context, const JobVerbArguments& arguments) {
  const auto client = context.MakeClient();
  if (!client.ok()) return context.Fail(client.status());
  const auto request = arguments.filter.Request();
  if (!request.ok()) return context.Fail(request.status());
  Json document = {{"jobs", Json::array()}};
  std::string text;
  const absl::Status listed = ForEachJob(
      *request, arguments.limit,
      [&](const v1::ListJobsRequest& page) { return (*client)->List(page); },
      [&](const v1::Job& job) {
        document["jobs"].push_back(JobDocument(job));
        text += absl::StrFormat(
            "%s  %-20s %s  %s\n", job.uid(),
            google::protobuf::util::TimeUtil::ToString(job.create_time()).substr(0, 19),
            job.app_id(), JobProgressText(job));
      });
  if (!listed.ok()) return context.Fail(listed);
  context.Print(document, text);
  return terminal::kOk;
}

using JobVerb = std::function<int(client::Client& client, JobVerbArguments& arguments)>;

/// Makes the verb take a UID and call `run`.
void OnJob(CLI::App& verb, Context& context, const std::shared_ptr<JobVerbArguments>& arguments,
           JobVerb run) {
  verb.add_option("uid", arguments->uid, "The job")->required()->type_name("UID");
  verb.callback([&context, arguments, run = std::move(run)] {
    context.action = [&context, arguments, run] {
      const auto uid = ParseUid(arguments->uid);
      if (!uid.ok()) return context.Fail(uid.status());
      arguments->uid = *uid;
      const auto client = context.MakeClient();
      return client.ok() ? run(**client, *arguments) : context.Fail(client.status());
    };
  });
}

}  // namespace

void DefineGet(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<JobVerbArguments>();
  OnJob(verb, context, arguments,
        [&context](auto& client, auto& args) { return RunGet(context, client, args); });
  verb.add_option("-o,--output", arguments->output,
                  "Fetch the result into this file; the cluster then forgets it");
  verb.add_option("--trace", arguments->trace,
                  "Write the job's spans of all processes here (Chrome trace)");
}

void DefineCancel(CLI::App& verb, Context& context) {
  OnJob(verb, context, std::make_shared<JobVerbArguments>(),
        [&context](auto& client, auto& args) { return RunCancel(context, client, args); });
}

void DefineDelete(CLI::App& verb, Context& context) {
  OnJob(verb, context, std::make_shared<JobVerbArguments>(),
        [&context](auto& client, auto& args) { return RunDelete(context, client, args); });
}

void DefineWatch(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<JobVerbArguments>();
  verb.add_option("uid", arguments->uid, "The job")->required()->type_name("UID");
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] {
      const terminal::Interrupt interrupt;  // Must come before the client's threads start.
      const auto uid = ParseUid(arguments->uid);
      if (!uid.ok()) return context.Fail(uid.status());
      arguments->uid = *uid;
      const auto client = context.MakeClient();
      return client.ok() ? RunWatch(context, **client, *arguments, interrupt.token())
                         : context.Fail(client.status());
    };
  });
}

void DefineJobs(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<JobVerbArguments>();
  verb.add_option("--limit", arguments->limit, "At most so many")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  arguments->filter.AddTo(verb);
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunJobs(context, *arguments); };
  });
}

}  // namespace onepiece::cli
