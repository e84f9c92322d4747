#include "tests/chaos/watcher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "tests/chaos/load.h"
#include "tests/eventually.h"

namespace onepiece::chaos {
namespace {

constexpr auto kStream = std::chrono::seconds(3);
constexpr auto kWatcherRetry = std::chrono::milliseconds(50);
constexpr std::size_t kMaxWatcherComplaints = 20;

}  // namespace

Watcher::Watcher(const std::vector<std::string>& addresses) : addresses_(addresses) {
  for (const std::string& address : addresses_) {
    stubs_.push_back(v1::NodeManagerService::NewStub(rpc::MakeChannel(address)));
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

std::map<std::string, std::uint64_t> Watcher::values() const {
  const base::MutexLock lock(mutex_);
  return values_;
}

std::vector<std::string> Watcher::complaints() const {
  const base::MutexLock lock(mutex_);
  return complaints_;
}

void Watcher::Run(const std::stop_token& stop) {
  std::size_t replica = 0;
  while (!stop.stop_requested()) replica = Follow(replica, stop);
}

std::size_t Watcher::Follow(std::size_t replica, const std::stop_token& stop) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, kStream);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  v1::WatchClusterRequest request;
  request.set_start_revision(revision_);
  const auto stream = stubs_[replica]->WatchCluster(&context, request);
  v1::ClusterEvent event;
  bool brought = false;
  while (stream->Read(&event)) {
    brought = true;
    Take(event);
  }
  streams_ += brought ? 1 : 0;
  const absl::Status status = rpc::FromGrpc(stream->Finish());
  if (brought && status.code() == absl::StatusCode::kDeadlineExceeded) return replica;
  const auto metadata = base::GetReason(status).metadata;
  if (const auto hint = metadata.find("leader"); hint != metadata.end()) {
    const auto leader = std::find(addresses_.begin(), addresses_.end(), hint->second);
    if (leader != addresses_.end()) replica = static_cast<std::size_t>(leader - addresses_.begin());
  } else {
    replica = (replica + 1) % stubs_.size();
  }
  testing::Pause(kWatcherRetry);
  return replica;
}

void Watcher::Take(const v1::ClusterEvent& event) {
  const base::MutexLock lock(mutex_);
  const bool news = event.change_case() != v1::ClusterEvent::CHANGE_NOT_SET;
  // A change has a later revision than the known one. A snapshot and a heartbeat may repeat the
  // known one.
  const bool repeats = event.revision() == revision_ && (!news || event.has_snapshot());
  if (event.revision() <= revision_ && !repeats && complaints_.size() < kMaxWatcherComplaints) {
    complaints_.push_back(
        absl::StrCat("an event of revision ", event.revision(), " came after ", revision_));
  }
  revision_ = event.revision();
  if (event.has_snapshot()) {
    values_.clear();
    for (const v1::Workflow& workflow : event.snapshot().workflows()) {
      if (const std::uint64_t value = Load::ValueOf(workflow)) values_[workflow.app_id()] = value;
    }
  }
  if (event.has_workflow()) {
    if (const std::uint64_t value = Load::ValueOf(event.workflow()))
      values_[event.workflow().app_id()] = value;
  }
  if (!event.workflow_deleted().empty()) values_.erase(event.workflow_deleted());
}

}  // namespace onepiece::chaos
