// Records what a session sees into the file of its cluster, and takes what people say of alerts.
//
// Ownership  Shares the session.
// Threading  Thread-safe. state() never waits for the disk; all else may: not on the GUI thread.
// Blocking   The destructor waits for the tick under way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/session/session.h"
#include "cluster/history/record_loop.h"
#include "gui/models/alert_desk.h"

namespace onepiece::gui {

class RecordingService : public AlertDesk {
 public:
  RecordingService(std::shared_ptr<Session> session, std::string folder,
                   std::vector<history::Rule> rules);

  /// `folder`/CLUSTER_ID.onepiece-recording; empty until the cluster has told its id.
  [[nodiscard]] std::string WantedPath() const;
  /// Records into that file from now on, unless it does already. The same cluster may be recorded
  /// by another console: FAILED_PRECONDITION (IN_USE), and the file can be read all the same.
  absl::Status Begin();
  [[nodiscard]] history::RecordState state() const { return loop_.state(); }
  absl::Status Bookmark(std::int64_t at_ms, const std::string& text) {
    return loop_.Bookmark(text, at_ms);
  }
  absl::Status Acknowledge(const std::string& id, const std::string& who) override {
    return loop_.Acknowledge(id, who);
  }
  absl::Status Silence(const std::string& id, std::int64_t until_ms,
                       const std::string& reason) override {
    return loop_.Silence(id, until_ms, reason);
  }

 private:
  const std::shared_ptr<Session> session_;
  const std::string folder_;
  history::RecordLoop loop_;
};

}  // namespace onepiece::gui
