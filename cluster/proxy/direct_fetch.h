// Large artifacts read straight out of a database's memory, so that its processor has no part in
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/artifact.h"
#include "cluster/node/cluster_view.h"
#include "cluster/values/remote_values.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::proxy {

/// Ownership: Borrows `view`, `fabric` and `clock`, which outlive it.
/// Threading: Thread-safe.
/// Invariants: What it reads and is not sent yet takes at most kMaxBytes; it knows the results of
/// at most kMaxKnown jobs.
class DirectFetch {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;
  static constexpr std::size_t kMaxKnown = 4096;

  DirectFetch(const node::ClusterView& view, const std::string& node_id, fabric::Fabric& fabric,
              base::Clock& clock = base::SystemClock());

  /// The job as a database has just shown it: whoever fetches its result has asked for it before.
  void Note(const base::Uid& uid, const v1::Job& job);
  void Forget(const base::Uid& uid);

  struct Value {
    v1::ResultArtifact info;
    message::Buffer bytes;
    std::shared_ptr<const void> room;  ///< Counts against kMaxBytes while it lives.
  };
  /// The whole artifact ("": the main one). nullopt: nothing large is known of that job, it is not
  /// there to be read, or too much is being read; then fetch it by message, which also says what is
  /// wrong. What was known may be old: who sends it on compares it with what the database says.
  std::optional<Value> Get(const base::Uid& uid, const std::string& artifact);

 private:
  std::shared_ptr<const void> TakeRoom(std::int64_t bytes);
  std::optional<v1::JobResult> Known(const base::Uid& uid) const;

  const node::ClusterView& view_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  /// The results with large artifacts. Uids begin with the time, so the first is the oldest.
  std::map<base::Uid, v1::JobResult> known_ ABSL_GUARDED_BY(mutex_);
  values::ValuePeers peers_;
  std::shared_ptr<std::atomic<std::int64_t>> used_;
};

}  // namespace onepiece::proxy
