// A connection to one cluster. It follows everything that the console shows and carries out what
// people ask for. It knows no Qt, so that `onepiece record` runs the same code.
//
// Each kind of news has a thread: WatchCluster with telemetry; plans, elasticity and the audit log;
// rings; the jobs of every workflow set; databases and replicas. The threads put the news on a
// board of parts, where the latest version of a part wins. Readers take the board when they draw,
// up to ten times a second. A slow or dead network therefore never blocks a reader, and nothing
// grows while nobody looks.
//
// Threading: may be used from any thread.
// Blocking: Latest() and status() take a lock for moments and never wait for the network. The
// destructor cancels all calls and waits for the threads, for at most 1 s.
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

namespace onepiece::session {

/// A cluster to connect to.
struct ClusterAddress {
  std::string name;                       ///< The name for people.
  std::vector<std::string> nodemanagers;  ///< host:port
  /// The console shows a band, and people must type the name before risky changes.
  bool production = false;
};

struct SessionOptions {
  base::Duration telemetry_interval = std::chrono::milliseconds(500);
  base::Duration poll_interval = std::chrono::seconds(1);  ///< For news that is not streamed.
  std::size_t max_jobs = 100'000;  ///< Jobs to keep. The oldest that have ended go first.
  base::Duration first_backoff = std::chrono::milliseconds(250);
  base::Duration max_backoff = std::chrono::seconds(5);
  /// The name that servers see. They leave calls with this name out of what they count as load.
  std::string user_agent = "onepiece-console";
};

class Session {
 public:
  explicit Session(ClusterAddress target, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const ClusterAddress& target() const;
  /// Returns what is known now, never null. The pointer is the same as before when nothing is new.
  /// After a lost connection the snapshot keeps what was known, with errors and ages.
  [[nodiscard]] std::shared_ptr<const Snapshot> Latest() const;
  [[nodiscard]] LinkStatus status() const;
  /// Takes the outcome of a change, which may show that the server is read-only
  /// (LinkStatus::read_only).
  void NoteAnswer(const absl::Status& status);
  /// Ends the pause before the next try to connect.
  void RetryNow();
  /// Forgets what it has heard and asks for everything anew. Readers see the old parts until then.
  void Resync();

  /// Runs `action`, a change that people ask for, on one of four threads, in the order of the
  /// calls. Returns false when 64 actions wait already. The client's calls have deadlines, and are
  /// cancelled when the session ends.
  ///
  /// Lifetime: what `action` captures must outlive the session.
  using Action = std::function<void(client::Client& client)>;
  bool Do(Action action);
  /// Returns the nodes that are not dead and have an address, for calls that go to one process
  /// (TailLogs).
  [[nodiscard]] std::vector<v1::Node> Nodes() const;
  /// Sets the alerts, which cluster/history evaluates, as a part of the snapshot.
  void SetAlerts(Part<Alerts> alerts);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::session
