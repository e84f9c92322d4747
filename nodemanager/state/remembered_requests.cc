#include "nodemanager/state/remembered_requests.h"

#include <algorithm>
#include <utility>

namespace onepiece::nodemanager {
namespace {

std::int64_t Gap(const v1::RememberedRequest& before, const v1::RememberedRequest& after) {
  // The comparison comes first, because the difference of two times from outside may overflow.
  if (after.time_unix_ms() <= before.time_unix_ms()) return 0;
  const auto gap = static_cast<std::uint64_t>(after.time_unix_ms()) -
                   static_cast<std::uint64_t>(before.time_unix_ms());
  return static_cast<std::int64_t>(std::min<std::uint64_t>(gap, RememberedRequests::kMaxGapMs));
}

}  // namespace

const v1::RememberedRequest* RememberedRequests::Find(const std::string& request_id) const {
  const auto place = places_.find(request_id);
  return place == places_.end() ? nullptr : &requests_[place->second - first_];
}

void RememberedRequests::Add(v1::RememberedRequest request) {
  places_[request.request_id()] = first_ + requests_.size();
  bytes_ += request.ByteSizeLong();
  // The times are the commands' and never this machine's, so that all replicas forget the same
  // requests.
  if (!requests_.empty()) age_ms_ += Gap(requests_.back(), request);
  requests_.push_back(std::move(request));
  while (requests_.size() > kMaxRequests || bytes_ > kMaxBytes ||
         (requests_.size() > kMinRequests && age_ms_ > kKeptMs))
    Forget();
}

void RememberedRequests::Forget() {
  bytes_ -= requests_.front().ByteSizeLong();
  places_.erase(requests_.front().request_id());
  if (requests_.size() > 1) age_ms_ -= Gap(requests_[0], requests_[1]);
  requests_.pop_front();
  ++first_;
}

}  // namespace onepiece::nodemanager
