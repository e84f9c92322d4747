#include "cluster/rpc/replicas.h"

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "cluster/base/check.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"

namespace onepiece::rpc {
namespace {

constexpr base::Duration kFirstPause = std::chrono::milliseconds(25);
constexpr base::Duration kMaxPause = std::chrono::seconds(2);
constexpr std::size_t kMaxAddressBytes = 300;
// A new leader takes a node that has not reported in dead_after for dead. So a replica that is back
// must be reached in much less, also by a node that has tried for long: until a channel tries again
// its calls fail at once, and the search pauses for up to kMaxPause more.
constexpr ChannelTiming kTiming{.backoff_max = std::chrono::milliseconds(500)};

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool LooksLikeAddress(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  return text.size() <= kMaxAddressBytes && colon != std::string::npos && colon > 0 &&
         colon + 1 < text.size();
}

}  // namespace

std::optional<std::string> LeaderHint(const absl::Status& status) {
  const base::ErrorReason reason = base::GetReason(status);
  if (reason.reason != kNotLeader) return std::nullopt;
  const auto leader = reason.metadata.find(kLeader);
  return leader != reason.metadata.end() && LooksLikeAddress(leader->second) ? leader->second : "";
}

bool IsAboutTheReplica(const absl::Status& status) {
  // A server that shuts down cancels the calls that it has begun.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status))
    return true;
  // Only a NodeManager gives a reason with these codes. Without one, some other service answered,
  // or gRPC made the status.
  const bool not_ours = absl::IsUnknown(status) || absl::IsInternal(status) ||
                        absl::IsResourceExhausted(status) || absl::IsUnimplemented(status);
  return not_ours && base::GetReason(status).reason.empty();
}

Replicas::Replicas(std::vector<std::string> configured, std::string user_agent)
    : user_agent_(std::move(user_agent)), configured_(std::move(configured)) {
  if (!configured_.empty()) leader_ = configured_[base::RandomU64() % configured_.size()];
}

void Replicas::Learn(const std::vector<std::string>& addresses) {
  std::vector<std::string> learned;
  for (const std::string& address : addresses) {
    if (learned.size() == kMaxLearned) break;
    if (LooksLikeAddress(address) && !Contains(learned, address)) learned.push_back(address);
  }
  if (learned.empty()) return;
  const base::MutexLock lock(mutex_);
  learned_ = std::move(learned);
  const std::vector<std::string> known = AddressesLocked();
  std::erase_if(channels_, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return entry.first != leader_ && !Contains(known, entry.first);
  });
}

std::vector<std::string> Replicas::AddressesLocked(bool configured_too) const {
  std::vector<std::string> all = learned_;
  if (!configured_too && !all.empty()) return all;
  for (const std::string& address : configured_) {
    if (!Contains(all, address)) all.push_back(address);
  }
  return all;
}

std::vector<std::string> Replicas::Asked(bool configured_too) const {
  const base::MutexLock lock(mutex_);
  return AddressesLocked(configured_too);
}

std::vector<std::string> Replicas::addresses() const {
  const base::MutexLock lock(mutex_);
  return AddressesLocked();
}

std::string Replicas::leader() const {
  const base::MutexLock lock(mutex_);
  return leader_;
}

std::uint64_t Replicas::found() const {
  const base::MutexLock lock(mutex_);
  return found_;
}

Replica Replicas::Open(const std::string& address, bool alive) {
  const base::MutexLock lock(mutex_);
  const std::vector<std::string> known = AddressesLocked();
  // Hints may name ever new addresses, so channels that nobody needs are dropped here.
  if (channels_.size() > known.size() + 1) {
    std::erase_if(channels_, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return entry.first != leader_ && !Contains(known, entry.first);
    });
  }
  auto& channel = channels_[address];
  if (channel == nullptr) {
    channel = MakeChannel(address, kTiming, user_agent_);
  } else if (alive && channel->GetState(false) == GRPC_CHANNEL_TRANSIENT_FAILURE) {
    // The channel has failed for so long that it pauses long between its attempts. A peer now says
    // that the replica is up, and a new channel connects immediately.
    channel = MakeChannel(address, kTiming, user_agent_);
  }
  return {address, channel};
}

void Replicas::SetLeader(const std::string& address, bool answers) {
  const base::MutexLock lock(mutex_);
  if (answers && (!leader_answers_ || leader_ != address)) ++found_;
  leader_ = address;
  leader_answers_ = answers;
}

LeaderSearch::LeaderSearch(Replicas& replicas)
    : replicas_(replicas), pause_(base::Scaled(kFirstPause)) {}

Replica LeaderSearch::Next() {
  if (now_.empty()) now_ = replicas_.leader();
  ONEPIECE_CHECK(!now_.empty());
  const bool alive = !hint_.empty();
  hint_.clear();
  return replicas_.Open(now_, alive);
}

base::Duration LeaderSearch::Failed(const absl::Status& status) {
  if (now_.empty()) now_ = replicas_.leader();
  asked_.push_back(now_);
  const std::optional<std::string> hint = LeaderHint(status);
  heard_ |= hint.has_value();
  const std::string failed = now_;
  const auto fresh = [this](const std::string& address) {
    return !address.empty() && !Contains(asked_, address);
  };
  now_.clear();
  // Another caller may have found the leader meanwhile, so its finding comes before the list.
  const std::string believed = replicas_.leader();
  if (asked_.size() < kMaxAsked && hint.has_value() && fresh(*hint)) {
    now_ = hint_ = *hint;
  } else if (asked_.size() < kMaxAsked && fresh(believed)) {
    now_ = believed;
  }
  const std::vector<std::string> all = replicas_.Asked(wide_);
  const auto at = std::find(all.begin(), all.end(), failed);
  const std::size_t from = at == all.end() ? 0 : static_cast<std::size_t>(at - all.begin()) + 1;
  for (std::size_t i = 0; now_.empty() && i < all.size() && asked_.size() < kMaxAsked; ++i) {
    if (fresh(all[(from + i) % all.size()])) now_ = all[(from + i) % all.size()];
  }
  if (!now_.empty()) {
    // Only the belief that has just failed is replaced, and not one that another caller has found.
    if (believed == failed) replicas_.SetLeader(now_, false);
    return base::Duration::zero();
  }
  // The next round begins with a replica other than the one that this round ended with.
  now_ = all.empty() ? failed : all[from % all.size()];
  if (believed == failed) replicas_.SetLeader(now_, false);
  const base::Duration pause =
      pause_ / 2 + base::Duration(static_cast<base::Duration::rep>(
                       base::RandomU64() % static_cast<std::uint64_t>(pause_.count() / 2 + 1)));
  pause_ = std::min(pause_ + pause_ / 4, base::Scaled(kMaxPause));
  asked_.clear();
  // A follower that answered means that the group is up and elects a leader. Its configured
  // addresses would know nothing better.
  wide_ = !heard_;
  heard_ = false;
  return pause;
}

void LeaderSearch::Restart() {
  now_.clear();
  hint_.clear();
  asked_.clear();
  heard_ = wide_ = false;
}

void LeaderSearch::Answered() {
  replicas_.SetLeader(now_.empty() ? replicas_.leader() : now_, true);
  asked_.clear();
  heard_ = wide_ = false;
  pause_ = base::Scaled(kFirstPause);
}

}  // namespace onepiece::rpc
