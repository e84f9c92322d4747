#include "tests/e2e/job_load.h"

#include <algorithm>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"
#include "tests/eventually.h"

namespace onepiece::e2e {
namespace {

constexpr auto kCallLimit = std::chrono::seconds(10);

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

}  // namespace

JobLoad::JobLoad(const std::string& proxy)
    : stub_(v1::GenerationService::NewStub(rpc::MakeChannel(proxy))) {}

const OfferedJob& JobLoad::Offer(const std::string& app,
                                 const std::map<std::string, double>& numbers,
                                 std::chrono::seconds deadline, const std::string& tenant) {
  v1::SubmitJobRequest request;
  request.set_app_id(app);
  request.mutable_deadline()->set_seconds(deadline.count());
  if (!tenant.empty()) (*request.mutable_labels())["tenant"] = tenant;
  for (const auto& [name, value] : numbers)
    (*request.mutable_parameters()->mutable_fields())[name].set_number_value(value);
  grpc::ClientContext context;
  rpc::SetTimeLeft(context, kCallLimit);
  v1::Job job;
  OfferedJob offered{.at = base::SystemClock().Now(), .app = app};
  const absl::Status status = rpc::FromGrpc(stub_->SubmitJob(&context, request, &job));
  if (status.ok()) {
    offered.uid = job.uid();
  } else {
    const base::ErrorReason reason = base::GetReason(status);
    offered.reason = reason.reason;
    offered.retry = reason.metadata.contains("retry_after_ms");
    if (offered.reason.empty()) offered.reason = status.ToString();
  }
  jobs_.push_back(std::move(offered));
  return jobs_.back();
}

void JobLoad::OfferFor(std::chrono::milliseconds duration, std::chrono::microseconds interval,
                       const std::string& app, const std::map<std::string, double>& numbers) {
  const auto begun = base::SystemClock().Now();
  for (auto next = begun; next < begun + duration; next += interval) {
    testing::Pause(
        std::max(base::Duration::zero(), base::Duration(next - base::SystemClock().Now())));
    Offer(app, numbers);
  }
}

bool JobLoad::Await(std::chrono::seconds limit) {
  const auto until = base::SystemClock().Now() + limit;
  for (OfferedJob& offered : jobs_) {
    while (!offered.uid.empty() && !client::IsTerminal(offered.job.state())) {
      if (base::SystemClock().Now() >= until) return false;
      grpc::ClientContext context;
      rpc::SetTimeLeft(context, kCallLimit);
      v1::WatchJobRequest request;
      request.set_name(client::JobName(offered.uid));
      const auto stream = stub_->WatchJob(&context, request);
      while (stream->Read(&offered.job)) {
      }
    }
  }
  return true;
}

std::map<std::string, int> JobLoad::Counts() const {
  std::map<std::string, int> counts;
  for (const OfferedJob& offered : jobs_) {
    if (offered.uid.empty()) continue;
    std::string state = v1::Job::State_Name(offered.job.state());
    if (offered.job.has_error()) state += "(" + offered.job.error().reason() + ")";
    ++counts[state];
  }
  return counts;
}

bool AllSucceeded(JobLoad& load) {
  if (!load.Await(std::chrono::seconds(120))) return false;
  const auto counts = load.Counts();
  return counts.size() == 1 && counts.contains("SUCCEEDED");
}

std::string Told(const JobLoad& load) {
  std::string text;
  for (const auto& [state, count] : load.Counts())
    text += state + " " + std::to_string(count) + " ";
  return text;
}

double LatencyOf(const v1::Job& job) {
  return Seconds(job.end_time()) - Seconds(job.create_time());
}

double QueuedOf(const v1::Job& job) {
  double sum = 0;
  for (const v1::StageTiming& timing : job.timings()) sum += Seconds(timing.queued());
  return sum;
}

double ComputedOf(const v1::Job& job, const std::string& stage) {
  double sum = 0;
  for (const v1::StageTiming& timing : job.timings())
    sum += timing.stage() == stage ? Seconds(timing.compute()) : 0;
  return sum;
}

double TransferOf(const v1::Job& job) {
  double sum = 0;
  for (const v1::StageTiming& timing : job.timings()) sum += Seconds(timing.transfer());
  return sum;
}

}  // namespace onepiece::e2e
