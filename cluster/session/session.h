// A connection to one cluster: follows everything that the console shows and carries out what its
// people ask for. Knows no Qt, so that `onepiece record` is the same code.
//
// What       One thread for each kind of news (WatchCluster with telemetry; plans, elasticity and
// audit;
//            rings; jobs of every workflow set; databases and replicas) puts it into a board of
//            parts, the latest wins. Whoever draws takes the board ten times a second: what is slow
//            or dead on the network never blocks a reader, and nothing grows while nobody looks.
// Threading  Thread-safe. Latest() and status() take a lock for moments and never wait for the
// network. Blocking   The destructor cancels all calls and waits for the threads (≤ 1 s).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/client/client.h"
#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui {

/// A cluster that can be connected to.
struct Target {
  std::string name;                       ///< What people call it.
  std::vector<std::string> nodemanagers;  ///< host:port
  bool production = false;  ///< Shown with a band, and its name must be typed for risky changes.
};

struct SessionOptions {
  base::Duration telemetry_interval = std::chrono::milliseconds(500);
  base::Duration poll_interval = std::chrono::seconds(1);  ///< Of what is asked for, not streamed.
  std::size_t max_jobs = 100'000;  ///< Kept; the oldest that have ended go first.
  base::Duration first_backoff = std::chrono::milliseconds(250);
  base::Duration max_backoff = std::chrono::seconds(5);
  /// How servers see us; they leave such calls out of what they count as load.
  std::string user_agent = "onepiece-console";
};

class Session {
 public:
  explicit Session(Target target, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const Target& target() const;
  /// What is known now; never null. The same pointer as before when nothing is new. After a lost
  /// connection it keeps what was known, with errors and ages.
  [[nodiscard]] std::shared_ptr<const Snapshot> Latest() const;
  [[nodiscard]] LinkStatus status() const;
  /// What a change came to: tells of a server that is read-only (LinkStatus::read_only).
  void NoteAnswer(const absl::Status& status);
  /// Ends the pause before the next try.
  void RetryNow();
  /// Forgets what it has heard and asks for everything anew; readers see the old parts until then.
  void Resync();

  /// What people ask for. Runs `action` on one of four threads, in the order of asking; false when
  /// 64 wait already. The client's calls have deadlines, and are cancelled when the session ends:
  /// `action` must not outlive what it captures.
  using Action = std::function<void(client::Client& client)>;
  bool Do(Action action);
  /// host:port of every process that serves now, for calls that go to one process (TailLogs).
  [[nodiscard]] std::vector<v1::Node> Nodes() const;
  /// Evaluated elsewhere (history/alerts), shown as a part of the snapshot.
  void SetAlerts(Part<Alerts> alerts);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::gui
