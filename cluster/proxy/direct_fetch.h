// Large artifacts read straight out of a database's memory, so that its processor has no part in
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/artifact.h"
#include "cluster/node/job_records.h"
#include "cluster/node/routing.h"
#include "cluster/values/remote_values.h"

namespace onepiece::proxy {

struct DirectFetchOptions {
  std::string node_id;
  std::function<std::shared_ptr<const node::Routing>()> routing;
};

/// Ownership  Borrows `fabric`, `records` and `clock`, which outlive it.
/// Threading  Thread-safe.
/// Invariant  What it reads and is not sent yet takes at most kMaxBytes.
class DirectFetch {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;

  DirectFetch(DirectFetchOptions options, fabric::Fabric& fabric, node::JobRecords& records,
              base::Clock& clock = base::SystemClock());

  struct Value {
    v1::ResultArtifact info;
    message::Buffer bytes;
    std::shared_ptr<const void> room;  ///< Counts against kMaxBytes while it lives.
  };
  /// The whole artifact ("": the main one). nullopt: it is small, not there to be read, or too much
  /// is being read; then fetch it by message, which also says what is wrong.
  std::optional<Value> Get(const base::Uid& uid, const std::string& artifact);

 private:
  std::shared_ptr<const void> TakeRoom(std::int64_t bytes);

  const DirectFetchOptions options_;
  node::JobRecords& records_;
  base::Clock& clock_;
  values::ValuePeers peers_;
  std::shared_ptr<std::atomic<std::int64_t>> used_;
};

}  // namespace onepiece::proxy
