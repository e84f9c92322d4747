// Nodes that have etcd as their control plane. Each has two threads, as a NodeAgent has one for
// each stream.
#include <list>
#include <stop_token>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "etcd.grpc.pb.h"
#include "tests/bench/control_plane/fleet.h"

namespace onepiece::bench {
namespace {

constexpr base::Duration kRetryAfter = std::chrono::milliseconds(50);
constexpr base::Duration kGrantLimit = std::chrono::seconds(2);

class EtcdNode {
 public:
  /// The nodes divide among the members, as etcd's own clients do.
  EtcdNode(const FleetPlan& plan, std::size_t index, Fleet& fleet)
      : index_(index), name_(NodeId(plan.first + index)), fleet_(fleet) {
    for (std::size_t i = 0; i < plan.addresses.size(); ++i) {
      channels_.push_back(
          rpc::MakeChannel(plan.addresses[(plan.first + index + i) % plan.addresses.size()]));
    }
    watching_ = std::thread([this] { Repeat([this](auto& channel) { return Watch(channel); }); });
    keeping_ =
        std::thread([this] { Repeat([this](auto& channel) { return KeepAlive(channel); }); });
  }

  std::string Complaint() const {
    const base::MutexLock lock(mutex_);
    return absl::StrCat(name_, ": ", base::Message(last_error_));
  }

 private:
  using Channel = std::shared_ptr<grpc::Channel>;

  /// Asks one member after the other. Never returns.
  template <typename Stream>
  [[noreturn]] void Repeat(Stream stream) {
    for (std::size_t turn = 0;; ++turn) {
      const absl::Status status = stream(channels_[turn % channels_.size()]);
      {
        const base::MutexLock lock(mutex_);
        last_error_ = status;
      }
      base::SystemClock().Pause({}, kRetryAfter);
    }
  }

  absl::Status Watch(const Channel& channel) {
    const auto stub = etcdserverpb::Watch::NewStub(channel);
    grpc::ClientContext context;
    const auto stream = stub->Watch(&context);
    etcdserverpb::WatchRequest request;
    request.mutable_create_request()->set_key(kEtcdKey);
    request.mutable_create_request()->set_start_revision(last_revision_ + 1);
    stream->Write(request);
    etcdserverpb::WatchResponse response;
    while (stream->Read(&response)) {
      for (const etcdserverpb::Event& event : response.events()) {
        fleet_.tables.Saw(index_, VersionOf(event.kv().value()), base::SystemClock().Now());
        last_revision_ = event.kv().mod_revision();
      }
    }
    return rpc::FromGrpc(stream->Finish());
  }

  absl::Status KeepAlive(const Channel& channel) {
    const auto stub = etcdserverpb::Lease::NewStub(channel);
    etcdserverpb::LeaseGrantRequest grant;
    grant.set_ttl_s(kDeadAfter / std::chrono::seconds(1));
    if (lease_ == 0) {
      ONEPIECE_ASSIGN_OR_RETURN(
          const auto granted,
          rpc::Call(*stub, &etcdserverpb::Lease::Stub::LeaseGrant, grant, kGrantLimit));
      lease_ = granted.id();
    }
    grpc::ClientContext context;
    const auto stream = stub->LeaseKeepAlive(&context);
    etcdserverpb::LeaseKeepAliveRequest request;
    request.set_id(lease_);
    etcdserverpb::LeaseKeepAliveResponse response;
    for (;;) {
      const base::MonotonicTime sent = base::SystemClock().Now();
      if (!stream->Write(request) || !stream->Read(&response)) break;
      if (response.ttl_s() <= 0) {
        lease_ = 0;
        return absl::AbortedError("its lease was over");
      }
      const base::MonotonicTime now = base::SystemClock().Now();
      fleet_.heartbeats.Saw(index_, sent.time_since_epoch().count(), now);
      base::SystemClock().Pause({}, sent + kHeartbeat - now);
    }
    return rpc::FromGrpc(stream->Finish());
  }

  const std::size_t index_;
  const std::string name_;
  Fleet& fleet_;
  std::vector<Channel> channels_;
  std::int64_t last_revision_ = 0;  // Of watching_ alone.
  std::int64_t lease_ = 0;          // Of keeping_ alone.
  mutable base::Mutex mutex_;
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  std::thread watching_, keeping_;
};

class EtcdFleet final : public Fleet {
 public:
  explicit EtcdFleet(const FleetPlan& plan) : Fleet(plan.count) {
    for (std::size_t index = 0; index < plan.count; ++index)
      nodes_.emplace_back(plan, index, *this);
  }
  std::string Complaint(std::size_t index) override {
    return std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(index))->Complaint();
  }

 private:
  std::list<EtcdNode> nodes_;
};

}  // namespace

std::unique_ptr<Fleet> StartEtcdNodes(const FleetPlan& plan) {
  return std::make_unique<EtcdFleet>(plan);
}

}  // namespace onepiece::bench
