// Nodes of one process for the tests of Inbox and Outbox: real shared memory, real gRPC.
#pragma once

#include <unistd.h>

#include <QtTest>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fault.h"
#include "cluster/message/message.h"
#include "cluster/node/inbox.h"
#include "cluster/node/outbox.h"
#include "cluster/rpc/server.h"

namespace onepiece::node {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline base::MonotonicTime In(base::Duration delay) { return base::SystemClock().Now() + delay; }

inline message::Message MakeMessage(std::size_t bytes, const std::string& stage = "diffuse") {
  message::Message message;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "video";
  message.header.stage = stage;
  message.header.deadline = base::SystemClock().Now() + seconds(60);
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + (i >> 8));
  message.artifacts.push_back(
      message::BytesArtifact("latents", "application/octet-stream", std::move(data)));
  return message;
}

/// A node that receives.
struct Receiver {
  Receiver(fabric::Fabric& fabric, const std::string& node_id, std::uint64_t incarnation = 1,
           std::uint32_t slots = 64, telemetry::Metrics* metrics = nullptr,
           ring::Shape shape = ring::Shape::kShared)
      : Receiver(fabric, node_id,
                 {.shape = shape, .capacity_bytes = 32 << 20, .slots = slots, .metrics = metrics},
                 incarnation) {}
  Receiver(fabric::Fabric& fabric, const std::string& node_id, InboxOptions options,
           std::uint64_t incarnation = 1, base::Clock& clock = base::SystemClock())
      : server({.listen = "127.0.0.1:0"}) {
    endpoint.set_node_id(node_id);
    endpoint.set_incarnation(incarnation);
    view.SetSelf(endpoint);
    options.label = node_id;
    auto opened = Inbox::Open(fabric, view, std::move(options), clock);
    if (!opened.ok()) qFatal("%s", base::Message(opened.status()).c_str());
    inbox = *std::move(opened);
    server.AddService(*inbox->service());
    if (const auto port = server.Start(); !port.ok())
      qFatal("%s", base::Message(port.status()).c_str());
    endpoint.set_address(server.address());
  }
  ~Receiver() { server.Shutdown(base::Duration(0)); }

  v1::Endpoint endpoint;
  ClusterView view;
  std::unique_ptr<Inbox> inbox;
  rpc::Server server;
};

/// The routing that an Outbox sees. Thread-safe.
class Cluster {
 public:
  void Set(const std::vector<v1::Endpoint>& alive) {
    v1::RoutingTable table;
    const base::MutexLock lock(mutex_);
    table.set_epoch(++epoch_);
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("video");
    for (const char* stage : {"text", "image", "paint"}) workflow.add_stages()->set_stage(stage);
    workflow.mutable_stages(2)->add_after("text");
    workflow.mutable_stages(2)->add_after("image");
    v1::Route& paint = *table.add_routes();
    paint.set_app_id("video");
    paint.set_stage("paint");
    v1::Route& route = *table.add_routes();
    route.set_app_id("video");
    route.set_stage("diffuse");
    for (const v1::Endpoint& node : alive) {
      *route.add_instances() = node;
      *table.add_alive() = node;
    }
    *paint.mutable_instances() = route.instances();
    view_.SetRouting(std::make_shared<const Routing>(table));
  }
  void Set(const v1::RoutingTable& table) {
    view_.SetRouting(std::make_shared<const Routing>(table));
  }
  const ClusterView& view() const { return view_; }

 private:
  base::Mutex mutex_;
  std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  ClusterView view_;
};

/// Makes one fault at the next operation of that name, or at every one. Thread-safe.
class FaultAt final : public fabric::FaultPolicy {
 public:
  void Arm(std::string name, fabric::FaultKind kind, bool every = false) {
    const base::MutexLock lock(mutex_);
    name_ = std::move(name);
    kind_ = kind;
    every_ = every;
  }
  fabric::Fault Before(const fabric::FaultPoint& point) override {
    const base::MutexLock lock(mutex_);
    if (name_.empty() || name_ != point.name) return {};
    if (!every_) name_.clear();
    return {.kind = kind_};
  }

 private:
  base::Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  fabric::FaultKind kind_ ABSL_GUARDED_BY(mutex_) = fabric::FaultKind::kNone;
  bool every_ ABSL_GUARDED_BY(mutex_) = false;
};

inline std::string ClusterId() {
  static const std::string id = "node-test-" + std::to_string(getpid());
  return id;
}

inline const Destination kDiffuse = Destination::Stage("video", "diffuse", {});

/// The operation that publishes a message.
inline constexpr const char* kCommit = "slot.commit";

/// A sender and a receiver in one process, as two processes of a board, so that the sender can be
/// hurt.
struct FaultyWorld {
  explicit FaultyWorld(fabric::Fabric& inner)
      : board(std::make_shared<fabric::FaultBoard>()),
        policy(std::make_shared<FaultAt>()),
        receiving(inner, board, board->NewProcess(), nullptr),
        sending(inner, board, board->NewProcess(), policy) {}
  std::shared_ptr<fabric::FaultBoard> board;
  std::shared_ptr<FaultAt> policy;
  fabric::FaultyFabric receiving, sending;
};

}  // namespace onepiece::node
