#include "tests/database/simulation/ledger.h"

#include <algorithm>

#include "cluster/job/job_record.h"

namespace onepiece::simulation {

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

void Ledger::Taken(const message::Header& header, const Incarnation& by) {
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

// Work is lost with its holder and its keeper, or after many attempts.
void Ledger::CheckLost(const v1::JobRecord& record) {
  // The record may know of a later attempt by now.
  auto holders = holders_[*base::Uid::Parse(record.job().uid())];
  for (const v1::WorkHolder& holder : record.holders()) {
    holders.insert(
        {{holder.node_id(), holder.incarnation()}, {holder.keeper(), holder.keeper_incarnation()}});
  }
  const auto died = [this](const Incarnation& node) {
    return node.first.empty() || dead_.contains(node);
  };
  const bool both = std::ranges::any_of(
      holders, [&](const auto& pair) { return died(pair.first) && died(pair.second); });
  const bool given_up =
      record.job().error().message().find(" instances, and none") != std::string::npos;
  if (!both && !given_up) {
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
