// Reads large artifacts straight out of a database's memory, so that the database's processor has
// no part in it.
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

/// Remembers the results that the databases have shown, and reads their large artifacts.
///
/// Ownership: Borrows `view`, `fabric` and `clock`, which outlive it.
///
/// Threading: Thread-safe.
///
/// Invariants: The values that it has read and that are not sent yet take at most kMaxBytes. It
/// knows the results of at most kMaxKnown jobs, those that were noted last.
class DirectFetch {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;
  static constexpr std::size_t kMaxKnown = 4096;

  DirectFetch(const node::ClusterView& view, const std::string& node_id, fabric::Fabric& fabric,
              base::Clock& clock = base::SystemClock());

  /// Remembers the job as a database has just shown it. A client asks for the job before it fetches
  /// the result.
  void Note(const base::Uid& uid, const v1::Job& job);
  void Forget(const base::Uid& uid);

  /// Whether Get would try to read that artifact. Never waits.
  [[nodiscard]] bool Knows(const base::Uid& uid, const std::string& artifact) const;

  struct Value {
    v1::ResultArtifact info;
    message::Buffer bytes;
    std::shared_ptr<const void> room;  ///< Counts against kMaxBytes while it lives.
  };
  /// Returns the whole artifact ("": the main one). Returns nullopt when no large artifact of that
  /// job is known, when it cannot be read now, or when too much is being read. Fetch it by message
  /// then, which also says what is wrong. The known result may be old, so the sender compares the
  /// value with what the database says.
  std::optional<Value> Get(const base::Uid& uid, const std::string& artifact);

 private:
  std::shared_ptr<const void> TakeRoom(std::int64_t bytes);
  /// A large artifact of a known result, and its ordinal.
  struct Large {
    v1::ResultArtifact info;
    std::uint32_t ordinal = 0;
  };
  std::optional<Large> Find(const base::Uid& uid, const std::string& artifact) const;
  void Drop(const base::Uid& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Noted {
    v1::JobResult result;
    std::uint64_t turn = 0;  ///< Key in turns_.
  };

  const node::ClusterView& view_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  /// The results with large artifacts.
  std::map<base::Uid, Noted> known_ ABSL_GUARDED_BY(mutex_);
  /// The same jobs in the order in which they were noted. Their uids say nothing about their age.
  std::map<std::uint64_t, base::Uid> turns_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  values::ValuePeers peers_;
  std::shared_ptr<std::atomic<std::int64_t>> used_;
};

}  // namespace onepiece::proxy
