#include "cluster/history/record_loop.h"

#include <algorithm>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/history/cluster_rules.h"
#include "cluster/history/recording.h"

namespace onepiece::history {
namespace {

constexpr base::Duration kTick = std::chrono::seconds(1);

// Returns true when the next tick may succeed.
bool MayPass(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kUnavailable;
}

}  // namespace

RecordLoop::Source RecordLoop::Of(session::Session& session) {
  return {
      [&session] { return session.Latest(); }, [&session] { return session.status(); },
      [&session](session::Part<session::Alerts> alerts) { session.SetAlerts(std::move(alerts)); },
      [rules = std::make_shared<ClusterRules>(LookIn(session))] { return rules->News(); }};
}

RecordLoop::RecordLoop(Source source, std::vector<Rule> rules, base::Clock& clock)
    : source_(std::move(source)),
      own_rules_(std::move(rules)),
      clock_(clock),
      engine_(own_rules_),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

RecordLoop::~RecordLoop() {
  thread_.request_stop();
  thread_.join();
}

std::int64_t RecordLoop::NowMs() const { return base::ToUnixMs(clock_.WallNow()); }

void RecordLoop::Run(const std::stop_token& stop) {
  base::MonotonicTime next = clock_.Now();
  while (!stop.stop_requested()) {
    Tick();
    // Ticks that were missed, because the computer slept or the disk was slow, are not made up for.
    next = std::max(next + kTick, clock_.Now());
    clock_.Pause(stop, next - clock_.Now());
  }
}

void RecordLoop::Tick() {
  const base::MutexLock lock(work_mutex_);
  session::Snapshot snapshot = *source_.latest();
  const session::LinkStatus link = source_.link();
  // The snapshot tells what is known at this moment. Its parts say how old they are.
  snapshot.at_ms = NowMs();
  FollowRules(snapshot);
  engine_.Evaluate(snapshot, link);
  ShowAlerts(snapshot.at_ms);
  snapshot.alerts = alerts_;
  if (!recorder_) return;
  const absl::Status status = recorder_->Record(snapshot, link);
  if (!status.ok() && !MayPass(status)) recorder_.reset();
  // This looks at the disk, so it comes before state_mutex_. state() must not wait for the disk.
  const std::int64_t bytes = recorder_ ? recorder_->bytes() : 0;
  const std::int64_t ticks = recorder_ ? recorder_->ticks() : 0;
  const base::MutexLock state_lock(state_mutex_);
  state_.recording = recorder_ != nullptr;
  state_.status = status;
  if (!status.ok()) return;
  state_.bytes = bytes;
  if (ticks == state_.ticks) return;  // Nothing was heard, so no tick was written.
  state_.ticks = ticks;
  state_.last_ms = snapshot.at_ms;
}

// A NodeManager of an older program has no configurations, and would be asked in vain again and
// again.
void RecordLoop::FollowRules(const session::Snapshot& snapshot) {
  const bool has_config =
      snapshot.cluster.value != nullptr && snapshot.cluster.value->config_revision() != 0;
  if (!source_.new_rules || !has_config) return;
  std::optional<std::vector<Rule>> rules = source_.new_rules();
  if (rules) engine_.SetRules(rules->empty() ? own_rules_ : *std::move(rules));
}

void RecordLoop::ShowAlerts(std::int64_t now_ms) {
  alerts_ = {std::make_shared<const session::Alerts>(engine_.alerts()), now_ms, ""};
  source_.set_alerts(alerts_);
}

absl::Status RecordLoop::Start(const std::string& path, const Limits& limits) {
  const base::MutexLock lock(work_mutex_);
  // The old recorder gives up its lock first. Otherwise Start() could not continue the same file.
  recorder_.reset();
  auto recorder = Recorder::Open(path, limits);
  if (recorder.ok()) RestoreAlerts(path);
  const base::MutexLock state_lock(state_mutex_);
  state_ = {.recording = recorder.ok(), .path = path, .status = recorder.status()};
  if (recorder.ok()) recorder_ = *std::move(recorder);
  return state_.status;
}

// Takes over what people said about alerts from the recording's last tick. A new recording has
// none.
void RecordLoop::RestoreAlerts(const std::string& path) {
  const auto recording = Recording::Open(path);
  if (!recording.ok()) return;
  const auto info = (*recording)->Info();
  if (!info.ok() || info->ticks == 0) return;
  const auto last = (*recording)->At(info->interval.to_ms);
  if (last.ok() && (*last)->alerts.value) engine_.Restore(*(*last)->alerts.value);
}

void RecordLoop::Stop() {
  const base::MutexLock lock(work_mutex_);
  recorder_.reset();
  const base::MutexLock state_lock(state_mutex_);
  state_.recording = false;
}

RecordState RecordLoop::state() const {
  const base::MutexLock lock(state_mutex_);
  return state_;
}

absl::Status RecordLoop::Bookmark(std::string_view text, std::int64_t at_ms) {
  const base::MutexLock lock(work_mutex_);
  if (!recorder_) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_RECORDING",
                           "nothing is being recorded: begin a recording first");
  }
  return recorder_->Bookmark(at_ms == 0 ? NowMs() : at_ms, text);
}

absl::Status RecordLoop::Acknowledge(std::string_view id, std::string_view who) {
  const base::MutexLock lock(work_mutex_);
  const absl::Status status = engine_.Acknowledge(id, who);
  if (status.ok()) ShowAlerts(NowMs());
  return status;
}

absl::Status RecordLoop::Silence(std::string_view id, std::int64_t until_ms,
                                 std::string_view reason) {
  const base::MutexLock lock(work_mutex_);
  const absl::Status status = engine_.Silence(id, until_ms, reason);
  if (status.ok()) ShowAlerts(NowMs());
  return status;
}

}  // namespace onepiece::history
