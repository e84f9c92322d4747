#include "cluster/proxy/start_claim.h"

#include <utility>

#include "cluster/job/job_record.h"

namespace onepiece::proxy {

StartClaim::StartClaim(Ask ask, const v1::Endpoint& self, base::Clock& clock,
                       std::function<std::uint64_t()> random)
    : ask_(std::move(ask)), self_(self), clock_(clock), random_(std::move(random)) {
  Lose();
}

void StartClaim::Lose() {
  number_ = job::RunRandom(random_());
  until_ = renew_at_ = base::MonotonicTime::min();
}

v1::StartLease StartClaim::ForNewJob() const {
  v1::StartLease lease;
  lease.set_claimant(self_.node_id());
  lease.set_incarnation(self_.incarnation());
  lease.set_number(job::NextRun({}, job::RunRandom(number_)));
  return lease;
}

bool StartClaim::IsOf(const v1::JobRecord& record) const {
  const v1::StartLease& lease = record.lease();
  return lease.number() != 0 && lease.claimant() == self_.node_id() &&
         lease.incarnation() == self_.incarnation() &&
         job::RunRandom(lease.number()) == job::RunRandom(number_);
}

void StartClaim::Note(const v1::JobRecord& record, base::MonotonicTime asked) {
  if (!IsOf(record)) return Lose();
  number_ = record.lease().number();
  const base::Duration left = job::FromProto(record.lease().time_left());
  until_ = asked + left;
  renew_at_ = asked + left / 3;
}

v1::ClaimStartRequest StartClaim::Request(const std::string& uid) const {
  v1::ClaimStartRequest request;
  request.set_uid(uid);
  request.set_claimant(self_.node_id());
  request.set_incarnation(self_.incarnation());
  request.set_number(number_);
  return request;
}

absl::StatusOr<v1::ClaimStartResponse> StartClaim::Take(const std::string& uid) {
  const base::MonotonicTime asked = clock_.Now();
  absl::StatusOr<v1::ClaimStartResponse> answer = ask_(Request(uid));
  if (!answer.ok()) return answer;  // It may hold yet.
  if (answer->granted()) {
    Note(answer->record(), asked);
  } else {
    Lose();
  }
  return answer;
}

void StartClaim::Release(const std::string& uid) {
  if (!holds()) return;
  v1::ClaimStartRequest request = Request(uid);
  request.set_release(true);
  (void)ask_(request);  // If the call is lost, the lease ends by itself.
  Lose();
}

}  // namespace onepiece::proxy
