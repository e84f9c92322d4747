#include "nodemanager/service/node_reports.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::int64_t kSkewShownMs = 1000;

void AddDetail(const std::string& what, v1::Node& node) {
  node.set_detail(absl::StrCat(node.detail(), node.detail().empty() ? "" : "; ", what));
}

}  // namespace

void NodeReports::Clear() {
  const base::MutexLock lock(mutex_);
  reports_.clear();
  window_ = LoadWindow(window_length_);
  ages_ = StampAges();
  last_check_.reset();
}

void NodeReports::Follow(base::Duration dead_after, base::Duration window) {
  const base::MutexLock lock(mutex_);
  if (dead_after < dead_after_) {
    const base::MonotonicTime grace = clock_.Now() + (dead_after_ - dead_after);
    for (auto& [node_id, report] : reports_) report.at = std::max(report.at, grace);
  }
  dead_after_ = dead_after;
  if (window == window_length_) return;
  window_length_ = window;
  window_ = LoadWindow(window);
}

void NodeReports::Note(const StateMachine& state) const {
  const base::MutexLock lock(mutex_);
  ages_.Note(state, clock_.Now());
}

void NodeReports::Take(const v1::ReportNodeRequest& request, const std::string& pool) {
  const base::MutexLock lock(mutex_);
  LastReport& report = reports_[request.node_id()];
  if (report.incarnation != request.incarnation()) report = {.incarnation = request.incarnation()};
  report.at = clock_.Now();
  report.wall = clock_.WallNow();
  report.routing_epoch = request.routing_epoch();
  report.complaint =
      window_.Add(request.node_id(), request.incarnation(), pool, request.load(), report.at);
  if (report.complaint.empty() || report.logged) return;
  report.logged = true;
  spdlog::warn("op=report node={} incarnation={} left_out=\"{}\"", request.node_id(),
               request.incarnation(), report.complaint);
}

void NodeReports::NoteLife(const std::string& node_id, std::uint64_t incarnation) {
  const base::MutexLock lock(mutex_);
  const auto known = reports_.find(node_id);
  if (known != reports_.end() && known->second.incarnation == incarnation)
    known->second.at = clock_.Now();
}

std::vector<NodeReports::DeadNode> NodeReports::FindDead(
    const std::map<std::string, std::uint64_t>& live) {
  std::vector<DeadNode> dead;
  const base::MutexLock lock(mutex_);
  const base::MonotonicTime now = clock_.Now();
  const bool stood_still = !last_check_ || now - *last_check_ > dead_after_ / 2;
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
    // While this process stood still it took no reports, so nobody can be blamed for silence.
    if (stood_still) report.at = now;
    if (now - report.at >= dead_after_)
      dead.push_back({.node_id = node_id, .incarnation = incarnation, .silent = now - report.at});
  }
  for (const auto& [node_id, report] : reports_) {
    if (!live.contains(node_id)) window_.Forget(node_id);
  }
  reports_ = std::move(kept);
  return dead;
}

void NodeReports::AddTo(v1::Node& node, const v1::NodeRecord& record) const {
  const base::MutexLock lock(mutex_);
  const auto known = reports_.find(node.node_id());
  const bool reported = known != reports_.end() &&
                        known->second.incarnation == node.incarnation() && known->second.wall;
  const v1::NodeLoad* load = reported ? window_.Last(node.node_id()) : nullptr;
  if (node.role() == v1::INSTANCE && IsAlive(node)) node.set_activity(ActivityOf(record, load));
  if (!reported) return;
  const std::int64_t unix_ms = base::ToUnixMs(*known->second.wall);
  node.mutable_last_report_time()->set_seconds(unix_ms / 1000);
  node.mutable_last_report_time()->set_nanos(static_cast<std::int32_t>(unix_ms % 1000) * 1'000'000);
  if (load != nullptr) *node.mutable_load() = *load;
  if (!known->second.complaint.empty()) AddDetail("its report: " + known->second.complaint, node);
  const std::int64_t skew_ms = load == nullptr ? 0 : load->clock_skew_ms();
  if (std::abs(skew_ms) > kSkewShownMs) {
    AddDetail(absl::StrFormat("its clock is %.1f s %s the NodeManager's: check NTP or chrony on "
                              "that host; nothing depends on it but the times that are shown",
                              std::abs(static_cast<double>(skew_ms)) / 1000,
                              skew_ms > 0 ? "ahead of" : "behind"),
              node);
  }
}

std::optional<base::Duration> NodeReports::SilenceOf(const v1::Node& node) const {
  const base::MutexLock lock(mutex_);
  const auto known = reports_.find(node.node_id());
  if (known == reports_.end() || known->second.incarnation != node.incarnation() ||
      !known->second.wall)
    return std::nullopt;
  return clock_.Now() - known->second.at;
}

void NodeReports::Read(const std::function<void(const Telemetry&)>& read) const {
  const base::MutexLock lock(mutex_);
  read({.window = &window_,
        .routing_epoch =
            [this](const std::string& node_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
              const auto known = reports_.find(node_id);
              return known == reports_.end() ? std::uint64_t{0} : known->second.routing_epoch;
            },
        .now = clock_.Now(),
        .wall_now = clock_.WallNow(),
        .ages = &ages_});
}

}  // namespace onepiece::nodemanager
