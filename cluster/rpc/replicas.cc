#include "cluster/rpc/replicas.h"

#include <algorithm>

#include "cluster/base/check.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"

namespace onepiece::rpc {
namespace {

constexpr base::Duration kFirstPause = std::chrono::milliseconds(25);
constexpr base::Duration kMaxPause = std::chrono::seconds(2);
constexpr std::size_t kMaxAddressBytes = 300;

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
  // A server that goes away cancels what it has begun.
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

Replicas::Replicas(std::vector<std::string> configured) : configured_(std::move(configured)) {
  if (!configured_.empty()) leader_ = configured_[base::RandomU64() % configured_.size()];
}

void Replicas::Learn(const std::vector<std::string>& addresses) {
  const std::scoped_lock lock(mutex_);
  learned_.clear();
  for (const std::string& address : addresses) {
    if (learned_.size() == kMaxLearned) break;
    if (!LooksLikeAddress(address) || Contains(configured_, address) || Contains(learned_, address))
      continue;
    learned_.push_back(address);
  }
  const std::vector<std::string> known = AddressesLocked();
  std::erase_if(channels_, [&](const auto& entry) {
    return entry.first != leader_ && !Contains(known, entry.first);
  });
}

std::vector<std::string> Replicas::AddressesLocked() const {
  std::vector<std::string> all = configured_;
  all.insert(all.end(), learned_.begin(), learned_.end());
  return all;
}

std::vector<std::string> Replicas::addresses() const {
  const std::scoped_lock lock(mutex_);
  return AddressesLocked();
}

std::string Replicas::leader() const {
  const std::scoped_lock lock(mutex_);
  return leader_;
}

std::uint64_t Replicas::found() const {
  const std::scoped_lock lock(mutex_);
  return found_;
}

Replica Replicas::Open(const std::string& address, bool alive) {
  const std::scoped_lock lock(mutex_);
  const std::vector<std::string> known = AddressesLocked();
  // Hints may name ever new addresses.
  if (channels_.size() > known.size() + 1) {
    std::erase_if(channels_, [&](const auto& entry) {
      return entry.first != leader_ && !Contains(known, entry.first);
    });
  }
  auto& channel = channels_[address];
  if (channel == nullptr) {
    channel = MakeChannel(address);
  } else if (alive && channel->GetState(false) == GRPC_CHANNEL_TRANSIENT_FAILURE) {
    // It was down long enough for a long pause between attempts; a peer says that it is up.
    channel = MakeChannel(address);
  }
  return {address, channel};
}

void Replicas::SetLeader(const std::string& address, bool answers) {
  const std::scoped_lock lock(mutex_);
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
  const std::string failed = now_;
  const auto fresh = [this](const std::string& address) {
    return !address.empty() && !Contains(asked_, address);
  };
  now_.clear();
  // Another caller may have found the leader meanwhile.
  const std::string believed = replicas_.leader();
  if (asked_.size() < kMaxAsked && hint.has_value() && fresh(*hint)) {
    now_ = hint_ = *hint;
  } else if (asked_.size() < kMaxAsked && fresh(believed)) {
    now_ = believed;
  }
  const std::vector<std::string> all = replicas_.addresses();
  const auto at = std::find(all.begin(), all.end(), failed);
  const std::size_t from = at == all.end() ? 0 : static_cast<std::size_t>(at - all.begin()) + 1;
  for (std::size_t i = 0; now_.empty() && i < all.size() && asked_.size() < kMaxAsked; ++i) {
    if (fresh(all[(from + i) % all.size()])) now_ = all[(from + i) % all.size()];
  }
  if (!now_.empty()) {
    if (believed == failed) replicas_.SetLeader(now_, false);
    return base::Duration::zero();
  }
  // The next round begins with whom this one did not end with.
  now_ = all.empty() ? failed : all[from % all.size()];
  if (believed == failed) replicas_.SetLeader(now_, false);
  const base::Duration pause =
      pause_ / 2 + base::Duration(static_cast<base::Duration::rep>(
                       base::RandomU64() % static_cast<std::uint64_t>(pause_.count() / 2 + 1)));
  pause_ = std::min(pause_ + pause_ / 4, base::Scaled(kMaxPause));
  asked_.clear();
  return pause;
}

void LeaderSearch::Restart() {
  now_.clear();
  hint_.clear();
  asked_.clear();
}

void LeaderSearch::Answered() {
  replicas_.SetLeader(now_.empty() ? replicas_.leader() : now_, true);
  asked_.clear();
  pause_ = base::Scaled(kFirstPause);
}

}  // namespace onepiece::rpc
