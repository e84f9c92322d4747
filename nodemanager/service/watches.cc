#include "nodemanager/service/watches.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cluster/rpc/state_stream.h"

namespace onepiece::nodemanager {
namespace {

// Rounds are at least this far apart, so that a burst of changes is one message, and so that the
// thread rests at least half of the time.
constexpr base::Duration kLeastInterval = std::chrono::milliseconds(5);

// Bounds the wait of a thread for which nothing is due.
constexpr base::Duration kLongestRest = std::chrono::hours(1);
constexpr base::Duration kRestBeforeRouting = std::chrono::milliseconds(100);

rpc::StreamShares::Options Places(std::size_t places) {
  return {.places = places,
          .reason = "TOO_MANY_STREAMS",
          .what = "streams of this NodeManager",
          .advice = "end a stream first, or ask again later"};
}

absl::Status ShuttingDown() {
  return base::MakeError(absl::StatusCode::kUnavailable, "SHUTTING_DOWN",
                         "the NodeManager is shutting down");
}

}  // namespace

Watches::Watches(Controller& controller, std::stop_token stopping, const WatchesOptions& options,
                 base::Clock& clock, const rpc::Door* door)
    : controller_(controller),
      stopping_(std::move(stopping)),
      clock_(clock),
      node_places_(Places(options.node_streams)),
      cluster_places_(Places(options.cluster_streams)),
      cluster_(controller, options.heartbeat, options.available_level),
      callers_(door) {
  on_stopping_.emplace(stopping_, [this] { Wake(); });
  controller_.OnChange([this] { Wake(); });
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

Watches::~Watches() {
  controller_.OnChange(nullptr);
  on_stopping_.reset();
}

Watches::Reactor* Watches::Begin(rpc::StreamShares& places,
                                 const grpc::CallbackServerContext& context, Arrival add) {
  auto place = places.Take(rpc::ShareHolder::Of(context));
  if (!place.ok()) return rpc::RefuseStream<grpc::ByteBuffer>(place.status());
  const auto stream = WatchStream::Begin(*std::move(place), [this] { Wake(); });
  {
    const base::MutexLock lock(mutex_);
    arrivals_.emplace_back([this, stream, add = std::move(add), shown = callers_.ShownBy(context)] {
      callers_.Add(stream, shown);
      add(stream);
    });
  }
  Wake();
  return stream.get();
}

Watches::Reactor* Watches::WatchRouting(const grpc::CallbackServerContext& context,
                                        const v1::WatchRoutingRequest& request) {
  return Begin(node_places_, context,
               [this, request](const auto& stream) { routing_.Add(request, stream); });
}

Watches::Reactor* Watches::WatchAssignment(const grpc::CallbackServerContext& context,
                                           const v1::WatchAssignmentRequest& request) {
  return Begin(node_places_, context,
               [this, request](const auto& stream) { assignments_.Add(request, stream); });
}

Watches::Reactor* Watches::WatchCluster(const grpc::CallbackServerContext& context,
                                        std::uint64_t start_revision, base::Duration interval) {
  return Begin(cluster_places_, context, [this, start_revision, interval](const auto& stream) {
    cluster_.Add(start_revision, interval, clock_.Now(), stream);
  });
}

void Watches::Wake() {
  {
    const base::MutexLock lock(mutex_);
    wake_ = true;
  }
  woken_.NotifyOne();
}

void Watches::TakeArrivals() {
  std::vector<std::function<void()>> arrivals;
  {
    const base::MutexLock lock(mutex_);
    arrivals.swap(arrivals_);
  }
  for (const auto& add : arrivals) add();
}

void Watches::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const base::MonotonicTime begun = clock_.Now();
    TakeArrivals();
    callers_.Look(begun);
    const absl::Status status = stopping_.stop_requested() ? ShuttingDown() : Round();
    if (!status.ok()) EndAll(status);
    const base::Duration took = clock_.Now() - begun;
    clock_.Pause(stop, std::max(kLeastInterval - took, took));
    // Nothing wakes the thread when a new generation may tell its routing. What the round saw
    // counts: it may tell it by now, and then somebody must do so.
    const base::Duration rest =
        std::min(tells_routing_ ? kLongestRest : kRestBeforeRouting, callers_.Period());
    const base::MonotonicTime routing = held_back_ ? next_routing_ : base::MonotonicTime::max();
    base::MutexLock lock(mutex_);
    clock_.WaitUntil(woken_, lock, stop, std::min({cluster_.NextDue(), begun + rest, routing}),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wake_; });
    wake_ = false;
  }
}

absl::Status Watches::Round() {
  const base::MonotonicTime now = clock_.Now();
  tells_routing_ = controller_.MayTellRouting();
  const bool is_time = tells_routing_ && now >= next_routing_;
  held_back_ = tells_routing_ && !is_time;
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    const bool routing = is_time && routing_.Look(state), assignments = assignments_.Look(state),
               cluster = cluster_.Look(state, now);
    return routing || assignments || cluster;
  }));
  if (is_time) next_routing_ = now + kPausePerTable * routing_.Send();
  assignments_.Send();
  cluster_.Send(now);
  slow_ = (tells_routing_ ? routing_.slow() : 0) + cluster_.slow();
  snapshots_ = routing_.snapshots();
  return absl::OkStatus();
}

void Watches::EndAll(const absl::Status& status) {
  routing_.EndAll(status);
  assignments_.EndAll(status);
  cluster_.EndAll(status);
  slow_ = 0;
}

}  // namespace onepiece::nodemanager
