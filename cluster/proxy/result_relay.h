// One client's fetch of a result: from the databases, or from a database's memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/node/result_fetches.h"
#include "cluster/proxy/direct_fetch.h"
#include "cluster/proxy/read_threads.h"
#include "cluster/rpc/part_stream.h"
#include "cluster/telemetry/spans.h"

namespace onepiece::proxy {

/// Passes a result on to a client, at the client's pace. It has at most two parts of a result that
/// comes by message: one that the client's transport takes, and the next one.
///
/// Ownership: shared by the client's stream, and by what brings the result. Borrows what Sources
/// names, which must outlive both.
/// Threading: thread-safe.
/// Blocking: never. A read thread reads a database's memory.
class ResultRelay final : public rpc::PartFeeder,
                          public node::PartTaker,
                          public std::enable_shared_from_this<ResultRelay> {
 public:
  struct Sources {
    node::ResultFetches& fetches;
    DirectFetch* direct = nullptr;  ///< None: all results come by message.
    ReadThreads& read_threads;
    telemetry::Spans& spans;
    /// Makes the status that the client gets.
    std::function<absl::Status(absl::Status)> present;
  };
  ResultRelay(Sources sources, node::ResultFetches::Wanted wanted);

  /// Begins to send. A stop of `stopping` ends what comes by message, with CANCELLED.
  void Start(std::shared_ptr<rpc::PartStream> stream, const std::stop_token& stopping);

  void OnTaken() override;
  void OnGone() override;
  void OnPart(rpc::ResultPart part) override;
  void OnEnd(const absl::Status& status) override;

 private:
  enum class Phase : std::uint8_t {
    kMessage,  ///< Parts come from the databases.
    kDirect,   ///< Parts are pieces of a value that was read as a whole.
    kCheck,    ///< The value has been sent, and a database says whether it is still the result.
  };
  void Go(std::optional<DirectFetch::Value> value);
  void Fetch(std::int64_t offset_bytes, std::int64_t limit_bytes);
  void SendPiece(std::optional<v1::ResultArtifact> artifact);
  void PassOn();
  void Cancel();
  void Close(const absl::Status& status);

  const Sources sources_;
  const node::ResultFetches::Wanted wanted_;
  base::Mutex mutex_;
  std::optional<telemetry::ScopedSpan> span_ ABSL_GUARDED_BY(mutex_);
  /// Until the client has gone, or has been told the end.
  std::shared_ptr<rpc::PartStream> stream_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<node::ResultFetch> fetch_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kMessage;
  /// By message: the stream has a part, the next part, and the end that comes after it.
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<rpc::ResultPart> next_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  /// The value, what it is, and what has not been sent of it.
  std::shared_ptr<const DirectFetch::Value> value_ ABSL_GUARDED_BY(mutex_);
  v1::ResultArtifact info_ ABSL_GUARDED_BY(mutex_);
  std::span<const std::byte> rest_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::stop_callback<std::function<void()>>> stop_;  // Last: it calls Cancel().
};

}  // namespace onepiece::proxy
