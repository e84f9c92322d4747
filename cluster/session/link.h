// What the console says of its connection, decided from what it hears and when. Pure: no clock, no
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace onepiece::gui {

enum class Link {
  kConnecting,  ///< Nothing heard yet.
  kLive,
  kLagging,          ///< Nothing heard for 2 s.
  kStale,            ///< Nothing heard for 5 s; the connection may still stand.
  kReconnecting,     ///< The connection is known to be lost.
  kAuthFailed,       ///< The server does not let us in; asking again does not help.
  kVersionMismatch,  ///< The server speaks another version of the API.
  kOffline,          ///< A recording.
};

/// "Live", "Lagging", … as the console writes it.
std::string LinkName(Link link);
/// An error for people: "NO_LEADER: the NodeManager's replicas have …", the code where there is no
/// reason.
std::string Explain(const absl::Status& status);

struct LinkStatus {
  Link link = Link::kConnecting;
  std::int64_t since_ms = 0;       ///< In this state.
  std::int64_t last_heard_ms = 0;  ///< 0: never.
  int attempt = 0;                 ///< Of reconnecting, from 1.
  std::int64_t next_try_ms = 0;    ///< 0: one is under way.
  /// What happened, with the server's code and message; for kVersionMismatch both versions.
  std::string detail;
  double clock_skew_s = 0;  ///< Server's clock ahead of ours.
  std::uint64_t dropped =
      0;  ///< Updates overtaken by newer ones before anybody looked (normal at > 10 Hz).
  bool read_only = false;  ///< The server has refused a change with READ_ONLY.
};

/// Threading: thread-confined (Session guards it).
class LinkState {
 public:
  explicit LinkState(std::int64_t now_ms);
  /// An event came, a heartbeat included. `server_ms` 0: it did not say.
  void Heard(std::int64_t now_ms, std::int64_t server_ms, int api_version);
  /// The stream ended, or a try failed; the next one comes at `next_try_ms`.
  void Lost(std::int64_t now_ms, const absl::Status& why, std::int64_t next_try_ms);
  /// A try begins.
  void Trying(std::int64_t now_ms);
  /// The console's clock was set; all instants move with it.
  void ClockSet(std::int64_t by_ms);
  /// A change was refused with READ_ONLY.
  void RefusedReadOnly();
  /// As it is at `now_ms`: silence turns Live into Lagging and Stale.
  [[nodiscard]] LinkStatus At(std::int64_t now_ms) const;

 private:
  void Enter(Link link, std::int64_t now_ms);

  LinkStatus status_;
  std::array<double, 8> skews_s_{};  ///< Of the last events that told the server's time.
  std::size_t heard_ = 0;            ///< Such events.
};

}  // namespace onepiece::gui
