#include "cluster/session/link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/rpc/version.h"

namespace onepiece::session {
namespace {

constexpr std::int64_t kLaggingMs = 2000;
constexpr std::int64_t kStaleMs = 5000;

bool NotLetIn(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

}  // namespace

std::string LinkName(Link link) {
  switch (link) {
    case Link::kConnecting:
      return "Connecting";
    case Link::kLive:
      return "Live";
    case Link::kLagging:
      return "Lagging";
    case Link::kStale:
      return "Stale";
    case Link::kReconnecting:
      return "Reconnecting";
    case Link::kAuthFailed:
      return "Auth failed";
    case Link::kVersionMismatch:
      return "Version mismatch";
    case Link::kOffline:
      return "Offline file";
  }
  return "Unknown";
}

bool IsUncertain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

std::string Explain(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  return absl::StrCat(reason.empty() ? absl::StatusCodeToString(status.code()) : reason, ": ",
                      status.message());
}

LinkState::LinkState(std::int64_t now_ms) { status_.since_ms = now_ms; }

void LinkState::Enter(Link link, std::int64_t now_ms) {
  // At() also knows the silent states, which status_ does not hold. A link that is heard again
  // after a silence is therefore live from now on.
  if (At(now_ms).link != link) status_.since_ms = now_ms;
  status_.link = link;
}

void LinkState::Heard(std::int64_t now_ms, std::int64_t server_ms, int api_version) {
  const bool other = api_version != 0 && api_version != rpc::kApiVersion;
  Enter(other ? Link::kVersionMismatch : Link::kLive, now_ms);
  status_.detail = other ? absl::StrCat("the server speaks version ", api_version,
                                        " of the API, this console version ", rpc::kApiVersion)
                         : "";
  status_.last_heard_ms = now_ms;
  status_.attempt = 0;
  status_.next_try_ms = 0;
  if (server_ms == 0) return;
  skews_s_[heard_ % skews_s_.size()] = static_cast<double>(server_ms - now_ms) / 1000;
  ++heard_;
  // An event that was under way for long makes the server's clock look behind. The largest
  // difference comes from the quickest event and is the most accurate.
  const auto known = static_cast<std::ptrdiff_t>(std::min<std::size_t>(heard_, skews_s_.size()));
  status_.clock_skew_s = *std::max_element(skews_s_.begin(), skews_s_.begin() + known);
}

void LinkState::Lost(std::int64_t now_ms, const absl::Status& why, std::int64_t next_try_ms) {
  Link link = status_.last_heard_ms == 0 ? Link::kConnecting : Link::kReconnecting;
  if (NotLetIn(why)) link = Link::kAuthFailed;
  Enter(link, now_ms);
  status_.detail = Explain(why);
  ++status_.attempt;
  status_.next_try_ms = next_try_ms;
}

void LinkState::Trying(std::int64_t) { status_.next_try_ms = 0; }

void LinkState::ClockSet(std::int64_t by_ms) {
  for (std::int64_t* instant : {&status_.since_ms, &status_.last_heard_ms, &status_.next_try_ms}) {
    if (*instant != 0) *instant += by_ms;
  }
  heard_ = 0;  // The known differences were measured against the clock before it was set.
  status_.clock_skew_s -= static_cast<double>(by_ms) / 1000;
}

void LinkState::RefusedReadOnly() { status_.read_only = true; }

LinkStatus LinkState::At(std::int64_t now_ms) const {
  LinkStatus status = status_;
  const std::int64_t silent_ms = now_ms - status.last_heard_ms;
  if (status.link != Link::kLive || silent_ms < kLaggingMs) return status;
  const bool stale = silent_ms >= kStaleMs;
  status.link = stale ? Link::kStale : Link::kLagging;
  status.since_ms = status.last_heard_ms + (stale ? kStaleMs : kLaggingMs);
  status.detail =
      absl::StrCat("nothing has come for ", silent_ms / 1000, " s; the connection may still stand");
  return status;
}

}  // namespace onepiece::session
