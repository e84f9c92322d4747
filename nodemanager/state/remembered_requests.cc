#include "nodemanager/state/remembered_requests.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cluster/base/check.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onepiece::nodemanager {
namespace {

// Forgotten requests are cut off when they take half of the bytes, and at least so many.
constexpr std::size_t kLeastCut = 64 << 10;
constexpr std::size_t kMaxVarint32 = 5;  // Bytes.

std::int64_t Gap(std::int64_t before, std::int64_t after) {
  // The comparison comes first, because the difference of two times from outside may overflow.
  if (after <= before) return 0;
  const auto gap = static_cast<std::uint64_t>(after) - static_cast<std::uint64_t>(before);
  return static_cast<std::int64_t>(std::min<std::uint64_t>(gap, RememberedRequests::kMaxGapMs));
}

}  // namespace

v1::RememberedRequest RememberedRequests::Read(const Place& place) const {
  v1::RememberedRequest request;
  ONEPIECE_CHECK(request.ParseFromArray(bytes_.data() + (place.at - dropped_bytes_),
                                        static_cast<int>(place.size)));
  return request;
}

std::optional<v1::RememberedRequest> RememberedRequests::Find(const std::string& request_id) const {
  const auto number = numbers_.find(request_id);
  if (number == numbers_.end()) return std::nullopt;
  return Read(places_[number->second - first_]);
}

void RememberedRequests::Add(const v1::RememberedRequest& request) {
  using Wire = google::protobuf::internal::WireFormatLite;
  using Coded = google::protobuf::io::CodedOutputStream;
  numbers_[request.request_id()] = first_ + places_.size();
  // The times are the commands' and never this machine's, so that all replicas forget the same
  // requests.
  if (!places_.empty()) age_ms_ += Gap(places_.back().time_unix_ms, request.time_unix_ms());
  const auto size = static_cast<std::uint32_t>(request.ByteSizeLong());
  std::array<std::uint8_t, 2 * kMaxVarint32> head;
  std::uint8_t* end = Coded::WriteTagToArray(
      Wire::MakeTag(v1::NodeManagerState::kRequestsFieldNumber, Wire::WIRETYPE_LENGTH_DELIMITED),
      head.data());
  end = Coded::WriteVarint32ToArray(size, end);
  bytes_.append(head.data(), end);
  // A StringOutputStream would fill the string's spare capacity with zeros at every call.
  request.AppendToString(&bytes_);
  size_ += size;
  places_.push_back({dropped_bytes_ + bytes_.size() - size, size, request.time_unix_ms()});
  while (places_.size() > kMaxRequests || size_ > kMaxBytes ||
         (places_.size() > kMinRequests && age_ms_ > kKeptMs))
    Forget();
}

void RememberedRequests::Forget() {
  const Place& front = places_.front();
  numbers_.erase(Read(front).request_id());
  size_ -= front.size;
  forgotten_bytes_ = front.at - dropped_bytes_ + front.size;
  if (places_.size() > 1) age_ms_ -= Gap(places_[0].time_unix_ms, places_[1].time_unix_ms);
  places_.pop_front();
  ++first_;
  if (forgotten_bytes_ < kLeastCut || forgotten_bytes_ < bytes_.size() / 2) return;
  bytes_.erase(0, forgotten_bytes_);
  dropped_bytes_ += std::exchange(forgotten_bytes_, 0);
}

}  // namespace onepiece::nodemanager
