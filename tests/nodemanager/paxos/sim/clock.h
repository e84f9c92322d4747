// The monotonic clock of one replica, with a rate of its own.
#pragma once

#include "nodemanager/paxos/types.h"
#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::paxos::sim {

class DriftClock {
 public:
  /// The machine boots, and its clock begins at `local`.
  void Boot(Nanos now, Nanos local) {
    since_ = now;
    local_ = local;
  }
  /// The clock runs `parts_per_million` too fast from now on.
  /// REQUIRES: parts_per_million > -10^6.
  void SetRate(Nanos now, std::int64_t parts_per_million) {
    local_ = LocalNanos(now);
    since_ = now;
    rate_ = parts_per_million;
  }
  [[nodiscard]] std::int64_t rate() const { return rate_; }
  [[nodiscard]] Time Local(Nanos now) const { return Time(Duration(LocalNanos(now))); }
  /// The first instant of true time at which the clock shows `local` or more.
  [[nodiscard]] Nanos When(Time local) const {
    const Nanos ahead = local.time_since_epoch().count() - local_;
    if (ahead <= 0) return since_;
    Nanos at = since_ + static_cast<Nanos>(static_cast<double>(ahead) * kMillion /
                                           static_cast<double>(kMillion + rate_));
    while (LocalNanos(at) >= local_ + ahead && at > since_) --at;
    while (LocalNanos(at) < local_ + ahead) ++at;
    return at;
  }

 private:
  static constexpr std::int64_t kMillion = 1'000'000;
  [[nodiscard]] Nanos LocalNanos(Nanos now) const {
    const Nanos passed = now - since_;
    return local_ + passed + passed / kMillion * rate_ + passed % kMillion * rate_ / kMillion;
  }

  Nanos since_ = 0, local_ = 0;
  std::int64_t rate_ = 0;
};

}  // namespace onepiece::paxos::sim
