// The verb submit.
#include "cluster/base/status.h"
#include "cluster/cli/job_output.h"
#include "cluster/cli/verbs.h"
#include "cluster/terminal/interrupt.h"
#include "cluster/terminal/job_arguments.h"
#include "cluster/terminal/progress_bar.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

struct SubmitArguments {
  terminal::JobArguments job;
  std::string request_id;
  int priority = 0;
  bool wait = false;
};

absl::StatusOr<v1::SubmitJobRequest> MakeRequest(const SubmitArguments& arguments) {
  v1::SubmitJobRequest request;
  request.set_app_id(arguments.job.app);
  ONEPIECE_ASSIGN_OR_RETURN(*request.mutable_parameters(), arguments.job.Parameters());
  ONEPIECE_ASSIGN_OR_RETURN(*request.mutable_inputs(), arguments.job.Inputs());
  request.set_request_id(arguments.request_id);
  request.set_priority(arguments.priority);
  if (arguments.job.deadline_s > 0) {
    *request.mutable_deadline() = google::protobuf::util::TimeUtil::MillisecondsToDuration(
        static_cast<std::int64_t>(arguments.job.deadline_s * 1000));
  }
  return request;
}

Json Submitted(const v1::Job& job) {
  return {
      {"uid", job.uid()}, {"state", StateName(job.state())}, {"workflow_set", job.workflow_set()}};
}

/// Returns when a watch gives up, which is well after the cluster itself must have ended the job.
base::MonotonicTime WatchDeadline(const v1::Job& job) {
  base::Clock& clock = base::SystemClock();
  const auto deadline = google::protobuf::util::TimeUtil::TimestampToMilliseconds(job.deadline());
  const auto left = std::chrono::milliseconds(
      std::max<std::int64_t>(0, deadline - base::ToUnixMs(clock.WallNow())));
  return clock.Now() + left + base::Scaled(std::chrono::seconds(30));
}

int WaitFor(const Context& context, client::Client& client, const v1::Job& submitted,
            const SubmitArguments& arguments, const terminal::Interrupt& interrupt) {
  absl::StatusOr<v1::Job> job;
  {
    terminal::ProgressBar bar(context);
    job = client.Watch(
        submitted.uid(),
        [&bar](const v1::Job& now) {
          bar.Show(JobShare(now), JobProgressText(now));
          return true;
        },
        WatchDeadline(submitted), interrupt.token());
  }
  if (base::GetReason(job.status()).reason == "INTERRUPTED") {
    context.Print(Submitted(submitted), "");
    context.Say("The job goes on. Follow it with `onepiece watch " + submitted.uid() +
                "`, fetch its result with `onepiece get " + submitted.uid() +
                " -o FILE`, or end it with `onepiece "
                "cancel " +
                submitted.uid() + "`.");
    return terminal::kInterrupted;
  }
  const auto fail = [&](absl::Status status) {
    base::ErrorReason reason = base::GetReason(status);
    reason.metadata["uid"] = submitted.uid();
    base::SetReason(status, reason);
    context.Say("The job is " + submitted.uid() + ": fetch its result with `onepiece get " +
                submitted.uid() + " -o FILE`.");
    return context.Fail(status);
  };
  if (!job.ok()) return fail(job.status());
  std::vector<std::string> files;
  if (job->state() == v1::Job::SUCCEEDED && !arguments.job.output.empty()) {
    auto saved = SaveResult(client, *job, arguments.job.output);
    if (!saved.ok()) return fail(saved.status());
    files = *std::move(saved);
  }
  PrintJob(context, *job, files);
  return ExitCodeOfJob(*job);
}

int RunSubmit(const Context& context, const SubmitArguments& arguments) {
  const terminal::Interrupt interrupt;
  if (!arguments.wait && !arguments.job.output.empty()) {
    return context.Fail(absl::InvalidArgumentError(
        "-o needs --wait; or fetch later with `onepiece get UID -o FILE`"));
  }
  auto request = MakeRequest(arguments);
  if (!request.ok()) return context.Fail(request.status());
  const auto client = context.MakeClient();
  if (!client.ok()) return context.Fail(client.status());
  const auto job = (*client)->Submit(*std::move(request));
  if (!job.ok()) return context.Fail(job.status());
  if (arguments.wait) return WaitFor(context, **client, *job, arguments, interrupt);
  context.Print(Submitted(*job), job->uid());
  context.Say("Follow it with `onepiece watch " + job->uid() +
              "`, fetch its result with `onepiece get " + job->uid() + " -o FILE`.");
  return terminal::kOk;
}

}  // namespace

void DefineSubmit(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<SubmitArguments>();
  arguments->job.AddTo(verb);
  verb.add_flag("--wait", arguments->wait, "Wait for the end; Ctrl-C leaves the job running");
  verb.add_option("--priority", arguments->priority, "-100 to 100, higher first")
      ->check(CLI::Range(-100, 100));
  verb.add_option("--request-id", arguments->request_id, "UUID: the same id gives the same job");
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunSubmit(context, *arguments); };
  });
}

}  // namespace onepiece::cli
