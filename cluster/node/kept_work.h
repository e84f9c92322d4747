// Work that this node has sent on, kept until its receiver has completed it (docs/architecture.md,
// "How is work computed again?").
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/delivered.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/work.pb.h"

namespace onepiece::node {

/// Names the work of a stage on the outputs of another. The stage of a result is empty.
struct WorkKey {
  base::Uid uid;
  std::uint64_t run = 0;
  std::string stage;
  std::string from;
  friend auto operator<=>(const WorkKey&, const WorkKey&) = default;
};
WorkKey KeyOf(const message::Header& header);

/// How often a workflow's work is begun again after deaths, when the workflow does not say.
inline constexpr int kDefaultRetries = 2;
/// The work of an edge that was given away so often is LOST, so that nothing goes round for ever.
inline constexpr std::uint32_t kMaxAttempts = 32;

/// How long one send of kept work looks for a taker (Destination::patience): it is tried again
/// soon. Scaled.
base::Duration KeptPatience();
/// How long one send of kept work may take: about a second, and the time that the bytes of its
/// artifacts take at 20 MB/s, which is a part of a slow network. Scaled.
base::Duration KeptLimit(const message::Message& message);

/// What KeptWork counts, for each stage.
enum class KeptWorkEvent : std::uint8_t {
  kNotKept,     ///< A message was sent on without a copy, for lack of room.
  kRecomputed,  ///< Work was given away again after a death.
  kQuarantined  ///< A job was ended because its work ended too many instances.
};

struct KeptWorkOptions {
  std::size_t max_bytes = std::size_t{256} << 20;  ///< Of artifacts.
  std::size_t max_items = 10'000;
  /// Called with what happened to work of a stage. It must be quick and must not call the object.
  std::function<void(KeptWorkEvent, const std::string& stage)> count = {};
};

/// Keeps what a node has sent on. The message names the node as its keeper, so the receiver tells
/// it (v1::WorkService) when the work is completed, or passed on to somebody else. When the routing
/// shows that the holder is dead, the work goes to another candidate with a larger attempt, from
/// its inputs. The larger attempt fences what the former holder still says, should it not be dead
/// after all. A job whose work has ended more instances than its workflow's `retries` allow is
/// quarantined.
///
/// A node that was stopped for a while is declared dead, and goes on under a later incarnation. It
/// still has what it keeps, so it tells the records its new incarnation.
///
/// Each decision is made with the job's record, because the holder's last words may have been lost:
/// what has ended, or was handed on already, is dropped. Whatever was given away is looked up again
/// from time to time, so a lost word costs memory for some seconds only. Work of a job that no
/// database knows is kept for a minute more: the database that has its record may be about to
/// restart.
///
/// Ownership: owns its thread, and shares the artifacts' bytes. Borrows the view and the clock.
/// Threading: thread-safe. The ways are called on the thread of Start(), or in Look().
/// Blocking: only Look() and Stop() wait, for a way that is being called.
class KeptWork {
 public:
  struct Ways {
    /// Returns the job's record (JobRecords::Get), soon.
    std::function<absl::StatusOr<v1::JobRecord>(const base::Uid&)> ask;
    /// Changes the job's record. It is called again after an error, except for NOT_FOUND.
    std::function<absl::Status(const v1::UpdateJobRequest&)> report;
    /// Gives the message to a node that takes it, within about a second, and the time that its
    /// bytes take. A message that may have arrived nevertheless does no harm, because the next one
    /// has a larger attempt.
    std::function<absl::StatusOr<Delivered>(const message::Message&)> send;
  };

  KeptWork(const ClusterView& view, Ways ways, KeptWorkOptions options = {},
           base::Clock& clock = base::SystemClock());
  ~KeptWork();  ///< Stop().
  KeptWork(const KeptWork&) = delete;
  KeptWork& operator=(const KeptWork&) = delete;

  /// Sets KeptWorkOptions::max_bytes; 0: as at the start. What is kept stays.
  void SetMaxBytes(std::int64_t bytes);
  /// Keeps the message, which is about to be sent, and names this node as its keeper. Without room
  /// the message gets no keeper. Call it before each send, also before one that is repeated. The
  /// bytes of the artifacts must be owned by their buffers.
  void Keep(message::Message& message);
  /// Drops the message with this header, which nobody took.
  void Forget(const message::Header& header);
  /// Notes that the message with this header may have arrived or not. Unless the job's record says
  /// soon that somebody has it, it goes to somebody else with a larger attempt. Returns false when
  /// it is not kept.
  bool Doubt(const message::Header& header);
  /// Notes who has the message.
  void Placed(const message::Header& header, const v1::WorkHolder& holder);
  /// Notes what a receiver says: the work is completed, or somebody else has it. What an earlier
  /// attempt says is ignored.
  void Settle(const v1::WorkSettled& settled);
  /// Returns whether it keeps this work, or work of a later run of the job. A record that names it
  /// as the keeper may be older than what it was told.
  [[nodiscard]] bool Keeps(const v1::HeldWork& work) const;

  /// Begins to look after the work, on a thread of its own.
  void Start();
  /// Ends the thread. What is kept is not looked after any more. Idempotent.
  void Stop();
  /// Looks once after all work whose holder is dead, or that was not looked up for a while. Ends
  /// early on `stop`.
  void Look(const std::stop_token& stop = {});

  [[nodiscard]] std::size_t items() const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  enum class State : std::uint8_t {
    kSender,  ///< It was not sent, or its sender does not know yet.
    kHeld,
    kTakenBack,  ///< Its holder has died, and nobody was sent the next attempt.
    kDoubtful    ///< Somebody may have this attempt.
  };
  struct Item {
    message::Message message;
    std::size_t bytes = 0;
    std::uint64_t revision = 0;  ///< Of this change of the item.
    State state = State::kSender;
    v1::WorkHolder holder;     ///< Who had or has it, unless the state is kSender.
    std::string workflow_set;  ///< In which `holder` was chosen.
    base::MonotonicTime next_look{};
    base::Duration pause{};  ///< Before the look after that one.
    /// Since when no database knows the job.
    std::optional<base::MonotonicTime> unknown_since;
  };
  enum class Verdict : std::uint8_t { kWait, kDrop, kSend, kQuarantine, kLost };

  using Items = std::map<WorkKey, Item>;
  /// The sizes of the least messages that nobody took in this look, by where they were to go.
  /// Larger ones would wait as long for nothing, and those for other places would wait behind them.
  using Refused = std::map<std::string, std::size_t>;

  // Drops what is out of date, and returns what must be looked after now.
  std::vector<std::pair<WorkKey, Item>> Due();
  void LookAfter(const WorkKey& key, Item item, Refused& refused);
  // Brings the item up to date with its job's record and says what to do with it.
  Verdict Judge(const v1::JobRecord& record, const Routing& routing, Item& item) const;
  void SendAgain(const WorkKey& key, Item item, Refused& refused);
  // Says in the record of an item, which its holder has, under which incarnation it is kept now.
  void Renew(const WorkKey& key, Item item);
  // Notes that the holder, which this table or an earlier one of its set names, has the item.
  static void Hold(const v1::WorkHolder& holder, const Routing& routing, Item& item);
  // Ends the job of the item.
  void End(const WorkKey& key, const Item& item, Verdict verdict);
  // These two replace or drop an item, unless somebody has changed it since the copy was taken. The
  // copy gets the new revision.
  bool PutBack(const WorkKey& key, Item& copy);
  void Drop(const WorkKey& key, const Item& copy);
  Items::iterator Erase(Items::iterator item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(KeptWorkEvent event, const std::string& stage) const;

  const ClusterView& view_;
  const Ways ways_;
  const KeptWorkOptions options_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  Items items_ ABSL_GUARDED_BY(mutex_);
  std::size_t max_bytes_ ABSL_GUARDED_BY(mutex_);
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t seen_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // Of the table that the last look had.
  std::uint64_t seen_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;  // Of this node, likewise.
  std::jthread thread_;
};

}  // namespace onepiece::node
