#include "nodemanager/service/controller.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/ids.h"
#include "nodemanager/assignment/assigner.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kMaxDetailBytes = 512;

// At most kMaxDetailBytes, without a torn UTF-8 character at the end.
std::string Shortened(const std::string& detail) {
  if (detail.size() <= kMaxDetailBytes) return detail;
  std::size_t size = kMaxDetailBytes;
  while (size > 0 && (static_cast<unsigned char>(detail[size]) & 0xc0) == 0x80) --size;
  return detail.substr(0, size);
}

}  // namespace

Controller::Controller(Log& log, base::Clock& clock, Options options)
    : log_(log), clock_(clock), options_(options) {}

absl::Status Controller::Initialize(const std::string& wanted) {
  std::string known;
  Read([&](const StateMachine& state) { known = state.cluster_id(); });
  if (!known.empty()) {
    if (wanted.empty() || wanted == known) return absl::OkStatus();
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
        absl::StrCat("the data folder belongs to cluster '", known, "', not '", wanted, "'"));
  }
  v1::Command command;
  v1::InitializeCluster& change = *command.mutable_initialize();
  change.set_cluster_id(wanted.empty() ? base::Uid::GenerateRandom().ToString().substr(0, 8)
                                       : wanted);
  std::string secret(kSecretBytes, '\0');
  base::FillRandom(secret.data(), secret.size());
  change.set_cluster_secret(secret);
  return Propose(std::move(command)).status();
}

void Controller::Start() {
  detector_ = std::jthread([this](const std::stop_token& stop) { Detect(stop); });
}

void Controller::Stop() {
  detector_.request_stop();
  if (detector_.joinable()) detector_.join();
}

void Controller::Detect(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  while (!stop.stop_requested()) {
    CheckLiveness();
    std::unique_lock lock(mutex);
    clock_.WaitUntil(never, lock, stop, clock_.Now() + options_.dead_after / 10,
                     [] { return false; });
  }
}

absl::StatusOr<v1::CommandResult> Controller::ProposeAlone(const v1::Command& command) {
  absl::StatusOr<v1::CommandResult> result = log_.Propose(command);
  if (!result.ok()) {
    ++failed_;
    return result.status();
  }
  const absl::Status status = ToStatus(*result);
  ++(status.ok() ? applied_ : refused_);
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<v1::CommandResult> Controller::Propose(v1::Command command) {
  command.set_time_unix_ms(base::ToUnixMs(clock_.WallNow()));
  absl::StatusOr<v1::CommandResult> result;
  {
    const std::lock_guard lock(change_mutex_);
    result = ProposeAlone(command);
    if (result.ok()) Reassign();
  }
  Notify();
  return result;
}

void Controller::Reassign() {
  v1::Command command;
  command.set_time_unix_ms(base::ToUnixMs(clock_.WallNow()));
  Read([&](const StateMachine& state) { *command.mutable_assign() = PlanAssignments(state); });
  if (command.assign().assignments().empty()) return;
  if (const auto result = ProposeAlone(command); !result.ok()) {
    // The detector tries again.
    spdlog::warn("op=assign error=\"{}\"", base::Message(result.status()));
    return;
  }
  for (const v1::NodeAssignment& assignment : command.assign().assignments()) {
    spdlog::info("op=assign node={} stage={}", assignment.node_id(),
                 assignment.has_stage() ? assignment.stage().stage() : "none");
  }
}

void Controller::Notify() {
  {
    const std::lock_guard lock(wait_mutex_);
    ++version_;
  }
  changed_.notify_all();
}

absl::StatusOr<std::uint64_t> Controller::Report(const v1::ReportNodeRequest& request) {
  v1::Command command;
  v1::SetNodeState& change = *command.mutable_set_node_state();
  change.set_node_id(request.node_id());
  change.set_incarnation(request.incarnation());
  change.set_state(request.state());
  change.set_detail(Shortened(request.detail()));
  change.set_assignment_epoch(request.assignment_epoch());
  *change.mutable_served_app_ids() = request.served_app_ids();
  bool is_current = false, is_news = true;
  std::uint64_t epoch = 0;
  Read([&](const StateMachine& state) {
    epoch = state.epoch();
    const auto known = state.nodes().find(request.node_id());
    if (known == state.nodes().end()) return;
    const v1::Node& node = known->second.node();
    is_current = node.incarnation() == change.incarnation() && IsAlive(node);
    is_news = !is_current || !IsKnown(known->second, change);
  });
  if (is_current) TakeHeartbeat(request);
  // An unknown or stale node is refused by the state machine.
  if (is_news) {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::CommandResult result, Propose(std::move(command)));
    epoch = result.epoch();
  }
  return epoch;
}

void Controller::TakeHeartbeat(const v1::ReportNodeRequest& request) {
  ++reports_taken_;
  const std::lock_guard lock(reports_mutex_);
  LastReport& report = reports_[request.node_id()];
  report.incarnation = request.incarnation();
  report.at = clock_.Now();
  report.wall = clock_.WallNow();
  report.load = request.load();
}

void Controller::CheckLiveness() {
  struct Live {
    std::string node_id;
    std::uint64_t incarnation;
  };
  std::vector<Live> live;
  Read([&](const StateMachine& state) {
    for (const auto& [id, record] : state.nodes()) {
      // NodeManagers do not report to themselves.
      if (!IsAlive(record.node()) || record.node().role() == v1::NODE_MANAGER) continue;
      live.push_back({id, record.node().incarnation()});
    }
  });
  std::vector<v1::Command> ends;
  {
    const std::lock_guard lock(reports_mutex_);
    const base::MonotonicTime now = clock_.Now();
    const bool stood_still = !last_check_ || now - *last_check_ > options_.dead_after / 2;
    last_check_ = now;
    std::map<std::string, LastReport> kept;
    for (const auto& [node_id, incarnation] : live) {
      LastReport& report = kept[node_id];
      if (const auto known = reports_.find(node_id);
          known != reports_.end() && known->second.incarnation == incarnation) {
        report = std::move(known->second);
      } else {
        report.incarnation = incarnation;
        report.at = now;
      }
      if (stood_still) report.at = now;
      if (now - report.at < options_.dead_after) continue;
      v1::EndNode& end = *ends.emplace_back().mutable_end_node();
      end.set_node_id(node_id);
      end.set_incarnation(incarnation);
      end.set_detail(absl::StrFormat("no report for %.1f s",
                                     std::chrono::duration<double>(now - report.at).count()));
    }
    reports_ = std::move(kept);
  }
  for (v1::Command& end : ends) {
    const v1::EndNode told = end.end_node();
    const absl::Status status = Propose(std::move(end)).status();
    spdlog::warn("op=dead node={} incarnation={} detail=\"{}\" proposed={}", told.node_id(),
                 told.incarnation(), told.detail(), status.ok() ? "ok" : base::Message(status));
  }
  const std::lock_guard lock(change_mutex_);
  const std::uint64_t before = applied_.load();
  Reassign();
  if (applied_.load() != before) Notify();
}

void Controller::AddTelemetry(v1::Node& node) const {
  const std::lock_guard lock(reports_mutex_);
  const auto known = reports_.find(node.node_id());
  if (known == reports_.end() || known->second.incarnation != node.incarnation() ||
      !known->second.wall)
    return;
  const std::int64_t unix_ms = base::ToUnixMs(*known->second.wall);
  node.mutable_last_report_time()->set_seconds(unix_ms / 1000);
  node.mutable_last_report_time()->set_nanos(static_cast<std::int32_t>(unix_ms % 1000) * 1'000'000);
  *node.mutable_load() = known->second.load;
}

void Controller::WaitForChange(std::uint64_t seen, const std::stop_token& stop,
                               base::MonotonicTime deadline) const {
  std::unique_lock lock(wait_mutex_);
  changed_.wait_until(lock, stop, deadline, [&] { return version_.load() != seen; });
}

Controller::Counters Controller::counters() const {
  return {applied_.load(), refused_.load(), failed_.load(), reports_taken_.load()};
}

}  // namespace onepiece::nodemanager
