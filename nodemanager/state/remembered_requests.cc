#include "nodemanager/state/remembered_requests.h"

#include <utility>

namespace onepiece::nodemanager {

const v1::RememberedRequest* RememberedRequests::Find(const std::string& request_id) const {
  const auto place = places_.find(request_id);
  return place == places_.end() ? nullptr : &requests_[place->second - first_];
}

void RememberedRequests::Add(v1::RememberedRequest request) {
  places_[request.request_id()] = first_ + requests_.size();
  bytes_ += request.ByteSizeLong();
  // The time is the command's and never this machine's, so that all replicas forget the same
  // requests.
  const std::int64_t expired = request.time_unix_ms() - kKeptMs;
  requests_.push_back(std::move(request));
  while (requests_.size() > kMaxRequests || bytes_ > kMaxBytes ||
         (requests_.size() > kMinRequests && requests_.front().time_unix_ms() < expired))
    Forget();
}

void RememberedRequests::Forget() {
  bytes_ -= requests_.front().ByteSizeLong();
  places_.erase(requests_.front().request_id());
  requests_.pop_front();
  ++first_;
}

}  // namespace onepiece::nodemanager
