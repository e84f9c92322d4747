// What moves through an instance: work that came in, and what became of it.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/message/message.h"

namespace onepiece::runtime {

/// One job's input of one stage, copied out of the ring.
struct WorkItem {
  message::Message message;
  base::WallTime arrival_time{};  ///< When the copy out was done.
  /// What `message` was joined from, for sending it on; it shares their artifacts. Empty when it
  /// came as it is.
  std::vector<message::Message> parts;
};

/// Sum of the item's artifacts.
inline std::size_t BytesOf(const WorkItem& item) {
  std::size_t bytes = 0;
  for (const message::Artifact& artifact : item.message.artifacts) bytes += artifact.data.size();
  return bytes;
}

/// Where the item's time went in this instance.
struct WorkTiming {
  base::Duration transfer{};  ///< Sender's encoding to arrival here.
  base::Duration queued{};    ///< Arrival to start.
  base::Duration compute{};   ///< Start to end of Stage::Run.
};

/// An item whose stage has run, or could not.
struct FinishedWork {
  WorkItem item;
  WorkTiming timing;
  absl::StatusOr<std::vector<message::Artifact>> outputs;
  std::set<std::string> delivered;  ///< Next stages that have the outputs already.
};

/// Reason of FinishedWork whose stage this instance does not serve, or whose branches meet
/// elsewhere: nothing was computed, it belongs elsewhere.
inline constexpr char kWrongStage[] = "WRONG_STAGE";
inline absl::Status WrongStage() {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, kWrongStage,
                         "this instance serves another stage");
}

/// Lets the work go on from `saved` (StageContext::Checkpoint), which replaces what an earlier run
/// saved.
inline void AddSaved(WorkItem& item, const std::vector<message::Artifact>& saved) {
  const auto add = [&saved](std::vector<message::Artifact>& artifacts, bool here) {
    std::erase_if(artifacts, [&](const message::Artifact& artifact) {
      return message::FindArtifact(saved, artifact.name) != nullptr;
    });
    if (here) artifacts.insert(artifacts.end(), saved.begin(), saved.end());
  };
  add(item.message.artifacts, true);
  // What is joined again elsewhere finds it with one of the parts.
  for (message::Message& part : item.parts) add(part.artifacts, &part == &item.parts.front());
}

/// Told what happens to items. Called on worker threads, one call at a time for each item; must not
/// block long.
class WorkEvents {
 public:
  virtual ~WorkEvents() = default;
  virtual void Started(const WorkItem& item) = 0;
  virtual void Progressed(const WorkItem& item, int step, int steps) = 0;
  /// Takes the item over. May wait for room downstream: that is the backpressure on the worker.
  virtual void Finished(FinishedWork work) = 0;
  /// A worker has loaded the stage with this model in `time`.
  virtual void ModelLoaded(const std::string& stage, const std::string& model_dir,
                           base::Duration time) = 0;
};

}  // namespace onepiece::runtime
