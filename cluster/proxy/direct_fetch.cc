#include "cluster/proxy/direct_fetch.h"

#include <algorithm>
#include <utility>

namespace onepiece::proxy {
namespace {

constexpr base::Duration kGetTimeout = std::chrono::seconds(5);

}  // namespace

DirectFetch::DirectFetch(DirectFetchOptions options, fabric::Fabric& fabric,
                         node::JobRecords& records, base::Clock& clock)
    : options_(std::move(options)),
      records_(records),
      clock_(clock),
      peers_(fabric, options_.node_id, clock),
      used_(std::make_shared<std::atomic<std::int64_t>>(0)) {}

std::optional<DirectFetch::Value> DirectFetch::Get(const base::Uid& uid,
                                                   const std::string& artifact) {
  const auto record = records_.Get(uid);
  if (!record.ok() || record->job().state() != v1::Job::SUCCEEDED) return std::nullopt;
  const auto& artifacts = record->job().result().artifacts();
  const auto found = std::ranges::find_if(artifacts, [&](const v1::ResultArtifact& info) {
    return artifact.empty() || info.artifact() == artifact;
  });
  if (found == artifacts.end() ||
      found->size_bytes() < static_cast<std::int64_t>(values::kDirectBytes)) {
    return std::nullopt;
  }
  const std::vector<v1::Endpoint> databases = options_.routing()->DatabasesFor(uid);
  std::shared_ptr<const void> room = TakeRoom(found->size_bytes());
  if (databases.empty() || room == nullptr) return std::nullopt;
  const auto ordinal = static_cast<std::uint32_t>(found - artifacts.begin());
  auto bytes = peers_.At(databases.front().address())
                   ->Get({uid, ordinal}, clock_.Now() + base::Scaled(kGetTimeout));
  if (!bytes.ok() || bytes->size() != static_cast<std::size_t>(found->size_bytes())) {
    return std::nullopt;
  }
  return Value{.info = *found, .bytes = *std::move(bytes), .room = std::move(room)};
}

std::shared_ptr<const void> DirectFetch::TakeRoom(std::int64_t bytes) {
  if (used_->fetch_add(bytes) + bytes > kMaxBytes) {
    used_->fetch_sub(bytes);
    return nullptr;
  }
  return {used_.get(), [used = used_, bytes](const void*) { used->fetch_sub(bytes); }};
}

}  // namespace onepiece::proxy
