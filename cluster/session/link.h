// Decides the state of a session's connection from what it hears and when. Pure: it has no clock
// and no thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace onepiece::session {

enum class Link {
  kConnecting,  ///< Nothing heard yet.
  kLive,
  kLagging,          ///< Nothing heard for 2 s.
  kStale,            ///< Nothing heard for 5 s. The connection may still stand.
  kReconnecting,     ///< The connection is known to be lost.
  kAuthFailed,       ///< The server does not let us in. Asking again does not help.
  kVersionMismatch,  ///< The server speaks another version of the API.
  kOffline,          ///< A recording is shown.
};

/// Returns the name as the console writes it: "Live", "Lagging", …
std::string LinkName(Link link);
/// Returns an error for people: "NO_LEADER: the NodeManager's replicas have …". Without a reason it
/// begins with the code.
std::string Explain(const absl::Status& status);
/// Whether the call that ended with `status` may have taken effect all the same.
bool IsUncertain(const absl::Status& status);

struct LinkStatus {
  Link link = Link::kConnecting;
  std::int64_t since_ms = 0;       ///< When this state began.
  std::int64_t last_heard_ms = 0;  ///< 0 means never.
  int attempt = 0;                 ///< The number of this attempt to reconnect, from 1.
  std::int64_t next_try_ms = 0;    ///< 0 while a try is under way.
  /// What happened, with the server's code and message. For kVersionMismatch it has both versions.
  std::string detail;
  double clock_skew_s = 0;  ///< The server's clock minus ours.
  /// Updates that newer ones replaced before a reader looked. That is normal above 10 per
  /// second.
  std::uint64_t dropped = 0;
  bool read_only = false;  ///< The server has refused a change with READ_ONLY.
};

/// The state of one connection.
///
/// Threading: needs external synchronisation. The Board guards it.
class LinkState {
 public:
  explicit LinkState(std::int64_t now_ms);
  /// An event came, perhaps a heartbeat. `server_ms` is 0 when it did not tell the server's time.
  void Heard(std::int64_t now_ms, std::int64_t server_ms, int api_version);
  /// The stream ended or a try failed. The next try comes at `next_try_ms`.
  void Lost(std::int64_t now_ms, const absl::Status& why, std::int64_t next_try_ms);
  /// A try begins.
  void Trying(std::int64_t now_ms);
  /// The machine's clock was set. All instants move with it.
  void ClockSet(std::int64_t by_ms);
  /// A change was refused with READ_ONLY.
  void RefusedReadOnly();
  /// Returns the state at `now_ms`. Silence turns Live into Lagging and then into Stale.
  [[nodiscard]] LinkStatus At(std::int64_t now_ms) const;

 private:
  void Enter(Link link, std::int64_t now_ms);

  LinkStatus status_;
  std::array<double, 8> skews_s_{};  ///< From the last events that told the server's time.
  std::size_t heard_ = 0;            ///< The number of such events.
};

}  // namespace onepiece::session
