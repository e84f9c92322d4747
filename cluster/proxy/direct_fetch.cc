#include "cluster/proxy/direct_fetch.h"

#include <algorithm>
#include <utility>

#include "cluster/base/mutex.h"

namespace onepiece::proxy {
namespace {

constexpr base::Duration kGetTimeout = std::chrono::seconds(5);

bool IsLarge(const v1::ResultArtifact& info) {
  return info.size_bytes() >= static_cast<std::int64_t>(values::kDirectBytes);
}

}  // namespace

DirectFetch::DirectFetch(const node::ClusterView& view, const std::string& node_id,
                         fabric::Fabric& fabric, base::Clock& clock)
    : view_(view),
      clock_(clock),
      peers_(fabric, node_id, clock),
      used_(std::make_shared<std::atomic<std::int64_t>>(0)) {}

void DirectFetch::Note(const base::Uid& uid, const v1::Job& job) {
  const v1::JobResult& result = job.result();
  if (job.state() != v1::Job::SUCCEEDED || result.fetched() || result.evicted() ||
      std::ranges::none_of(result.artifacts(), IsLarge)) {
    return Forget(uid);
  }
  const base::MutexLock lock(mutex_);
  Drop(uid);
  turns_.emplace(next_turn_, uid);
  known_.emplace(uid, Noted{result, next_turn_++});
  if (known_.size() <= kMaxKnown) return;
  const base::Uid oldest = turns_.begin()->second;
  Drop(oldest);
}

void DirectFetch::Forget(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  Drop(uid);
}

void DirectFetch::Drop(const base::Uid& uid) {
  const auto found = known_.find(uid);
  if (found == known_.end()) return;
  turns_.erase(found->second.turn);
  known_.erase(found);
}

std::optional<DirectFetch::Large> DirectFetch::Find(const base::Uid& uid,
                                                    const std::string& artifact) const {
  const base::MutexLock lock(mutex_);
  const auto known = known_.find(uid);
  if (known == known_.end()) return std::nullopt;
  const auto& artifacts = known->second.result.artifacts();
  const auto found = std::ranges::find_if(artifacts, [&](const v1::ResultArtifact& info) {
    return artifact.empty() || info.artifact() == artifact;
  });
  if (found == artifacts.end() || !IsLarge(*found)) return std::nullopt;
  return Large{.info = *found, .ordinal = static_cast<std::uint32_t>(found - artifacts.begin())};
}

bool DirectFetch::Knows(const base::Uid& uid, const std::string& artifact) const {
  return Find(uid, artifact).has_value();
}

std::optional<DirectFetch::Value> DirectFetch::Get(const base::Uid& uid,
                                                   const std::string& artifact) {
  const std::optional<Large> large = Find(uid, artifact);
  if (!large.has_value()) return std::nullopt;
  const std::int64_t size = large->info.size_bytes();
  const std::vector<v1::Endpoint> databases = view_.routing()->DatabasesFor(uid);
  std::shared_ptr<const void> room = TakeRoom(size);
  if (databases.empty() || room == nullptr) return std::nullopt;
  auto bytes = peers_.At(databases.front().address())
                   ->Get({uid, large->ordinal}, clock_.Now() + base::Scaled(kGetTimeout));
  if (!bytes.ok() || bytes->size() != static_cast<std::size_t>(size)) return std::nullopt;
  return Value{.info = large->info, .bytes = *std::move(bytes), .room = std::move(room)};
}

std::shared_ptr<const void> DirectFetch::TakeRoom(std::int64_t bytes) {
  // Adding comes before comparing, so two callers cannot both take the last room.
  if (used_->fetch_add(bytes) + bytes > kMaxBytes) {
    used_->fetch_sub(bytes);
    return nullptr;
  }
  return {used_.get(), [used = used_, bytes](const void*) { used->fetch_sub(bytes); }};
}

}  // namespace onepiece::proxy
