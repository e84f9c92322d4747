// The work that moves through an instance, before and after it is computed.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/message/message.h"

namespace onepiece::runtime {

/// One job's input of one stage, taken out of the ring.
struct WorkItem {
  message::Message message;
  base::MonotonicTime arrival{};  ///< When the message had been copied out of the ring.
  base::WallTime arrival_time{};  ///< The same moment, for people.
  /// The messages that `message` was joined from, for sending them on. They share artifacts with
  /// it. Empty when `message` was not joined.
  std::vector<message::Message> parts;
  /// The message was too large for the ring. Its artifacts lie in the memory for values, where it
  /// arrived, unless it waits for other branches (RequestScheduler::Push).
  bool by_value = false;
};

/// Returns the size of the item's artifacts.
inline std::size_t BytesOf(const WorkItem& item) {
  std::size_t bytes = 0;
  for (const message::Artifact& artifact : item.message.artifacts) bytes += artifact.data.size();
  return bytes;
}

/// How an item's time was spent.
struct WorkTiming {
  base::Duration transfer{};  ///< From the sender's encoding to the arrival here.
  base::Duration queued{};    ///< From the arrival to the start.
  base::Duration compute{};   ///< From the start to the end of Stage::Run.
};

/// An item whose stage has run, or could not run.
struct FinishedWork {
  WorkItem item;
  WorkTiming timing;
  absl::StatusOr<std::vector<message::Artifact>> outputs;
  std::set<std::string> delivered;  ///< Next stages that have the outputs already.
  /// What may have arrived somewhere, by what was sent: the deliverer's state of those sends, which
  /// only the deliverer looks into. While there is any, the work may not go anywhere else.
  std::map<std::string, std::shared_ptr<void>> open = {};
};

/// The reason of FinishedWork that belongs elsewhere: this instance does not serve its stage, or
/// its branches meet at another instance. Nothing was computed.
inline constexpr char kWrongStage[] = "WRONG_STAGE";
inline absl::Status WrongStage() {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, kWrongStage,
                         "this instance serves another stage");
}

/// Adds `saved` (StageContext::Checkpoint) to the item's inputs, so that its work goes on from
/// there. It replaces what an earlier run saved.
inline void AddSaved(WorkItem& item, const std::vector<message::Artifact>& saved) {
  const auto add = [&saved](std::vector<message::Artifact>& artifacts, bool here) {
    std::erase_if(artifacts, [&](const message::Artifact& artifact) {
      return message::FindArtifact(saved, artifact.name) != nullptr;
    });
    if (here) artifacts.insert(artifacts.end(), saved.begin(), saved.end());
  };
  add(item.message.artifacts, true);
  // A join elsewhere must find the saved state too, so one of the parts carries it.
  for (message::Message& part : item.parts) add(part.artifacts, &part == &item.parts.front());
}

/// Receives the events of items. It is called on worker threads, one call at a time for each item,
/// and must not block for long.
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
