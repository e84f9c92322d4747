#include "tests/database/simulation/ledger.h"

#include <algorithm>

#include "cluster/job/job_record.h"

namespace onepiece::simulation {
namespace {

constexpr Duration kLease = std::chrono::seconds(2);

}  // namespace

std::string OutputOf(const message::Header& header, const std::string& inputs) {
  return header.stage + "[" + std::to_string(header.run) + "." + std::to_string(header.attempt) +
         "](" + inputs + ")";
}

std::string Bare(const std::string& output) {
  std::string bare;
  bool inside = false;
  for (const char c : output) {
    if (c == '[') inside = true;
    if (!inside) bare += c;
    if (c == ']') inside = false;
  }
  return bare;
}

std::set<std::string> RunsIn(const std::string& output) {
  std::set<std::string> runs;
  for (std::size_t at = output.find('['); at != std::string::npos; at = output.find('[', at + 1))
    runs.insert(output.substr(at + 1, output.find('.', at) - at - 1));
  return runs;
}

void Ledger::Granted(const v1::JobRecord& record) {
  const v1::StartLease& lease = record.lease();
  world_.Tell("a database grants " + lease.claimant() + " " + std::to_string(lease.number()) + " " +
              record.job().uid());
  granted_[{*base::Uid::Parse(record.job().uid()), {lease.claimant(), lease.incarnation()}}] =
      world_.Now();
}

// Whoever delivers without the lease may do so beside another proxy.
void Ledger::Delivers(const base::Uid& uid, const Incarnation& proxy) {
  const auto granted = granted_.find({uid, proxy});
  if (granted == granted_.end() || world_.Now() - granted->second > kLease)
    world_.Violation("job " + uid.ToString() + " is started by " + proxy.first +
                     " without a lease");
}

void Ledger::Updated(const v1::UpdateJobRequest& update, const v1::JobRecord& before, bool holds,
                     const v1::JobRecord& after) {
  const v1::Job::State end = job::EndOf(after);
  if (job::EndOf(before) != v1::Job::STATE_UNSPECIFIED) return;
  if (end != v1::Job::FAILED && end != v1::Job::CANCELLED) return;
  if (holds) {
    world_.Violation("job " + update.uid() + " is " + v1::Job::State_Name(end) +
                     " where its result is held");
  }
  if (!update.has_ended_by()) return;
  const v1::WorkHolder& by = update.ended_by();
  const bool later = std::ranges::any_of(before.holders(), [&](const v1::WorkHolder& holder) {
    return holder.run() == by.run() && holder.stage() == by.stage() && holder.from() == by.from() &&
           holder.attempt() > by.attempt();
  });
  if (later || before.run() > by.run()) {
    world_.Violation("job " + update.uid() + " is ended by attempt " +
                     std::to_string(by.attempt()) + " of stage " + by.stage() +
                     ", and a later one is recorded");
  }
}

int Ledger::restarted() const {
  return static_cast<int>(
      std::ranges::count_if(started_, [](const auto& runs) { return runs.second.size() > 1; }));
}

void Ledger::Taken(const message::Header& header, const Incarnation& by,
                   const std::string& address) {
  started_[header.uid].insert(header.run);
  std::uint64_t& newest = runs_[{header.uid, address}];
  if (header.run < newest) {
    world_.Violation(by.first + " takes run " + std::to_string(header.run) + " of job " +
                     header.uid.ToString() + " after run " + std::to_string(newest));
  }
  newest = std::max(newest, header.run);
  holders_[header.uid].insert({by, {header.keeper, header.keeper_incarnation}});
}

void Ledger::Begun(const message::Header& header, const Incarnation& by) {
  begun_[{header.uid, header.stage}].insert(by);
}

void Ledger::Computed(const message::Header& header) {
  if (++computed_[{header.uid, header.stage}] > 1) ++recomputed_;
}

int Ledger::computed(const base::Uid& uid, const std::string& stage) const {
  const auto found = computed_.find({uid, stage});
  return found == computed_.end() ? 0 : found->second;
}

void Ledger::Ended(const v1::JobRecord& record, const std::string& by) {
  const v1::Job::State state = record.job().state();
  if (state == v1::Job::EXPIRED || job::IsTombstone(record)) return;
  const auto [known, is_new] =
      told_.try_emplace(*base::Uid::Parse(record.job().uid()), record.job());
  if (!is_new && known->second.state() != state && !split) {
    world_.Violation("job " + record.job().uid() +
                     " ended twice: " + v1::Job::State_Name(known->second.state()) + ", then " +
                     v1::Job::State_Name(state) + " at " + by);
  }
  if (!is_new || state != v1::Job::FAILED) return;
  if (record.job().error().reason() == "LOST") CheckLost(record);
  if (record.job().error().reason() == "QUARANTINED") CheckQuarantined(record);
}

// Work is lost with its holder and the memory of its keeper, or after many attempts, or when nobody
// took it before the deadline. A keeper that was only stopped comes back with all that it keeps.
void Ledger::CheckLost(const v1::JobRecord& record) {
  // The record may know of a later attempt by now.
  auto holders = holders_[*base::Uid::Parse(record.job().uid())];
  for (const v1::WorkHolder& holder : record.holders()) {
    holders.insert(
        {{holder.node_id(), holder.incarnation()}, {holder.keeper(), holder.keeper_incarnation()}});
  }
  const auto forgot = [this](const Incarnation& keeper) {
    const auto killed = killed_.find(keeper.first);
    return keeper.first.empty() ||
           (killed != killed_.end() && killed->second >= registered_[keeper]);
  };
  const bool both = std::ranges::any_of(holders, [&](const auto& pair) {
    const bool died = pair.first.first.empty() || dead_.contains(pair.first);
    return died && forgot(pair.second);
  });
  const bool given_up =
      record.job().error().message().find(" instances, and none") != std::string::npos;
  // Whoever submitted it was told that nobody took it.
  const bool never_begun = holders.empty();
  if (!both && !given_up && !never_begun) {
    world_.Violation("job " + record.job().uid() +
                     " is LOST, and no holder died with its keeper: " + record.ShortDebugString());
  }
}

void Ledger::CheckQuarantined(const v1::JobRecord& record) {
  const base::Uid uid = *base::Uid::Parse(record.job().uid());
  std::int64_t most = 0;
  for (const auto& [work, by] : begun_) {
    if (work.first != uid) continue;
    most = std::max(most, std::ranges::count_if(by, [this](const Incarnation& incarnation) {
                      return dead_.contains(incarnation);
                    }));
  }
  if (most <= kRetries) {
    world_.Violation("job " + record.job().uid() + " is QUARANTINED after " + std::to_string(most) +
                     " deaths: " + record.job().error().message());
  }
}

}  // namespace onepiece::simulation
