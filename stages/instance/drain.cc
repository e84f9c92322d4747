#include "stages/instance/drain.h"

#include <algorithm>

#include "cluster/base/mutex.h"

namespace onepiece::instance {

bool OthersServe(const node::Routing& table, const std::string& app, const std::string& stage,
                 const std::string& node_id) {
  return std::ranges::any_of(table.Instances(app, stage), [&](const v1::Endpoint& endpoint) {
    return endpoint.node_id() != node_id;
  });
}

void Drain::Begin(std::uint64_t epoch) {
  const base::MutexLock lock(mutex_);
  // A new epoch of the same drain does not begin it anew. Otherwise each one would put off the
  // handing over of running work.
  if (!epoch_) {
    since_ = clock_.Now();
    // Until the first look the work stays here: nobody has looked yet whether others serve it.
    others_ = false;
    empty_looks_ = 0;
  }
  epoch_ = epoch;
}

void Drain::End() {
  const base::MutexLock lock(mutex_);
  epoch_.reset();
}

bool Drain::Look(std::size_t held, bool others) {
  const base::MutexLock lock(mutex_);
  const bool before = IsDrained();
  others_ = others;
  // One look is not enough, because a message that was just received is counted nowhere for a
  // moment (WorkIntake::arriving).
  empty_looks_ = held == 0 ? std::min(empty_looks_ + 1, 2) : 0;
  return IsDrained() != before;
}

bool Drain::active() const {
  const base::MutexLock lock(mutex_);
  return epoch_.has_value();
}

Drain::Orders Drain::orders() const {
  const base::MutexLock lock(mutex_);
  const bool pass_on = epoch_.has_value() && others_;
  return {pass_on, pass_on && clock_.Now() - since_ >= hand_over_after_};
}

std::optional<std::uint64_t> Drain::drained() const {
  const base::MutexLock lock(mutex_);
  return IsDrained() ? epoch_ : std::nullopt;
}

}  // namespace onepiece::instance
