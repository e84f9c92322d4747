// etcd as the control plane: a value of the length of our routing table that every node watches,
// and a lease for every node.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "etcd.grpc.pb.h"
#include "tests/bench/control_plane/measure.h"

namespace onepiece::bench {
namespace {

constexpr base::Duration kPutLimit = std::chrono::seconds(1);
constexpr base::Duration kPutAgain = std::chrono::milliseconds(20);
constexpr char kTheirs[] = "etcd";

class EtcdSide final : public Side {
 public:
  EtcdSide(const ControlPlan& plan, std::size_t table_bytes)
      : plan_(plan), table_bytes_(table_bytes) {}

  absl::Status StartGroup() {
    ONEPIECE_ASSIGN_OR_RETURN(GroupPlan group, PlanEtcd(plan_.dir));
    ONEPIECE_ASSIGN_OR_RETURN(group_, Group::Start(std::move(group), plan_.dir));
    for (const std::string& address : group_->addresses())
      stubs_.push_back(etcdserverpb::KV::NewStub(rpc::MakeChannel(address)));
    return absl::OkStatus();
  }

  absl::Status StartCrowd(std::int64_t version) {
    const base::MonotonicTime start = base::SystemClock().Now();
    ONEPIECE_ASSIGN_OR_RETURN(crowd_, Crowd::Start(FleetKind::kEtcd, plan_.nodes,
                                                   group_->addresses(), plan_.dir, plan_.stop));
    ONEPIECE_RETURN_IF_ERROR(crowd_->WaitForTables(version, kCrowdLimit).status());
    return WaitForHeartbeats(start).status();
  }

  absl::Status Change(std::int64_t version) override {
    etcdserverpb::PutRequest request;
    request.set_key(kEtcdKey);
    std::string value = absl::StrCat(version, ":");
    value.resize(std::max(value.size(), table_bytes_), 'x');
    request.set_value(std::move(value));
    base::Clock& clock = base::SystemClock();
    const base::MonotonicTime deadline = clock.Now() + kCrowdLimit;
    for (;;) {
      const auto& stub = stubs_[member_ % stubs_.size()];
      const absl::Status status =
          rpc::Call(*stub, &etcdserverpb::KV::Stub::Put, request, kPutLimit).status();
      if (status.ok() || clock.Now() > deadline) return status;
      ++member_;
      if (!clock.Pause(plan_.stop, kPutAgain)) return Interrupted();
    }
  }

  absl::StatusOr<base::MonotonicTime> WaitForHeartbeats(base::MonotonicTime since) override {
    return crowd_->WaitForHeartbeats(since, kCrowdLimit);
  }

 private:
  const ControlPlan& plan_;
  const std::size_t table_bytes_;
  std::vector<std::unique_ptr<etcdserverpb::KV::Stub>> stubs_;
  std::size_t member_ = 0;  // The one that is asked first.
};

}  // namespace

absl::StatusOr<ControlNumbers> MeasureEtcd(const ControlPlan& plan, std::size_t table_bytes) {
  ControlNumbers numbers;
  EtcdSide side(plan, table_bytes);
  std::int64_t version = 1;
  ONEPIECE_RETURN_IF_ERROR(side.StartGroup());
  ONEPIECE_RETURN_IF_ERROR(side.Change(version));
  ONEPIECE_RETURN_IF_ERROR(side.StartCrowd(version));
  Progress(plan, kTheirs, "all watch and have a lease");
  ONEPIECE_RETURN_IF_ERROR(MeasureRest(side, plan, numbers));
  Progress(plan, kTheirs,
           absl::StrFormat("at rest the leader uses %.3f cores", numbers.leader_cores));
  ONEPIECE_RETURN_IF_ERROR(MeasureWatch(side, plan, version, numbers));
  Progress(plan, kTheirs, absl::StrCat(numbers.watch_s.size(), " changes have reached all"));
  ONEPIECE_RETURN_IF_ERROR(MeasureStorm(side, version, numbers));
  Progress(plan, kTheirs,
           absl::StrFormat("all are back %.2f s after the leader was killed", numbers.storm_s));
  return numbers;
}

}  // namespace onepiece::bench
