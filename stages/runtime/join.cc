#include "stages/runtime/join.h"

#include <algorithm>

#include "cluster/base/status.h"

namespace onepiece::runtime {
namespace {

constexpr base::Duration kLeadTime = std::chrono::seconds(1);

base::MonotonicTime GiveUpTime(const WorkItem& part) {
  const base::MonotonicTime deadline = part.message.header.deadline;
  const base::Duration tenth = (deadline - part.arrival) / 10;
  return deadline - std::clamp(tenth, base::Duration::zero(), kLeadTime);
}

std::string Quoted(const std::string& name) { return "'" + name + "'"; }

}  // namespace

absl::StatusOr<std::vector<message::Artifact>> Unite(std::span<const Branch> branches) {
  std::vector<message::Artifact> all;
  std::map<std::string_view, const std::string*> made_by;  // Artifact → stage.
  for (const Branch& branch : branches) {
    for (const message::Artifact& artifact : branch.artifacts) {
      const auto [known, is_new] = made_by.emplace(artifact.name, &branch.stage);
      if (!is_new) {
        return base::MakeError(absl::StatusCode::kInvalidArgument, "ARTIFACT_TWICE",
                               "artifact " + Quoted(artifact.name) + " comes from stage " +
                                   Quoted(*known->second) + " and from stage " +
                                   Quoted(branch.stage),
                               {{"artifact", artifact.name}});
      }
      all.push_back(artifact);
    }
  }
  return all;
}

absl::StatusOr<std::optional<WorkItem>> JoinTable::Add(WorkItem part,
                                                       std::span<const std::string> predecessors) {
  // This is a copy, because `part` is moved into the table before the header is last used.
  const message::Header header = part.message.header;
  const JoinKey key(header.uid, header.stage);
  auto join = joins_.find(key);
  if (std::ranges::count(predecessors, header.from) == 0) {
    if (join != joins_.end()) Erase(join);
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NOT_A_BRANCH",
                           "stage " + Quoted(header.stage) +
                               " does not take the outputs of stage " + Quoted(header.from));
  }
  if (join != joins_.end() && header.run < join->second.run) {
    ++fenced_;
    return std::nullopt;
  }
  if (join != joins_.end() && header.run > join->second.run) {
    fenced_ += join->second.parts.size();
    Erase(join);
    join = joins_.end();
  }
  const std::size_t part_bytes = BytesOf(part);
  if (join == joins_.end()) {
    Join begun{.give_up = GiveUpTime(part),
               .waits_since = part.arrival,
               .run = header.run,
               .number = next_number_++};
    join = joins_.emplace(key, std::move(begun)).first;
  }
  // The newest list counts: the workflow may have changed since the first part came. Expire names
  // the missing stages by it.
  join->second.predecessors.assign(predecessors.begin(), predecessors.end());
  auto& parts = join->second.parts;
  const auto [known, is_new] = parts.try_emplace(header.from);
  if (!is_new && header.attempt <= known->second.message.header.attempt) {
    ++duplicates_;
    return std::nullopt;
  }
  if (!is_new) SumOf(known->second) -= BytesOf(known->second);
  known->second = std::move(part);
  SumOf(known->second) += part_bytes;
  std::vector<Branch> branches;
  for (const std::string& stage : predecessors) {
    const auto found = parts.find(stage);
    if (found == parts.end()) return std::nullopt;
    branches.push_back({stage, found->second.message.artifacts});
  }
  absl::StatusOr<std::vector<message::Artifact>> artifacts = Unite(branches);
  if (!artifacts.ok()) {
    Erase(join);
    return artifacts.status();
  }
  const WorkItem& last = parts.at(header.from);
  WorkItem work{.message = {header, last.message.parameters, *std::move(artifacts)},
                .arrival = last.arrival,
                .arrival_time = last.arrival_time,
                .parts = {}};
  for (const std::string& stage : predecessors) {
    work.parts.push_back(parts.at(stage).message);
    std::uint32_t& attempt = work.message.header.attempt;
    // A part that was sent on carries a later attempt than the others. Should this work be sent on
    // too, its attempt must be later than all of theirs.
    attempt = std::max(attempt, work.parts.back().header.attempt);
  }
  Erase(join);
  return work;
}

absl::StatusOr<bool> JoinTable::MayCome(const message::Header& part,
                                        std::span<const std::string> predecessors,
                                        std::uint64_t bytes, std::uint64_t coming) const {
  const auto join = joins_.find({part.uid, part.stage});
  const bool begun = join != joins_.end();
  std::uint64_t together = bytes;
  if (begun) {
    const auto& parts = join->second.parts;
    if (std::ranges::all_of(predecessors, [&](const std::string& stage) {
          return stage == part.from || parts.contains(stage);
        })) {
      return false;
    }
    for (const auto& [stage, held] : parts) {
      if (held.by_value && stage != part.from) together += BytesOf(held);
    }
  }
  if (together > limits_.max_large_bytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "JOIN_TOO_LARGE",
                           "the inputs of stage " + Quoted(part.stage) +
                               " that would wait for another one have " + std::to_string(together) +
                               " bytes; the limit is " + std::to_string(limits_.max_large_bytes) +
                               " (ring.value_bytes, but at least 2 GiB)");
  }
  const bool oldest = begun && std::ranges::all_of(joins_, [&](const auto& other) {
                        return other.second.number >= join->second.number;
                      });
  const std::size_t limit = begun ? limits_.max_large_bytes : (limits_.max_large_bytes + 1) / 2;
  if (oldest || large_bytes_ + coming < limit) return true;
  return base::MakeError(absl::StatusCode::kResourceExhausted, "JOINS_FULL",
                         std::to_string(large_bytes_ + coming) + " bytes wait for other inputs");
}

void JoinTable::SwapArtifacts(message::Message& copy) {
  const auto join = joins_.find({copy.header.uid, copy.header.stage});
  if (join == joins_.end() || join->second.run != copy.header.run) return;
  const auto part = join->second.parts.find(copy.header.from);
  if (part == join->second.parts.end()) return;
  message::Message& held = part->second.message;
  if (held.header.attempt == copy.header.attempt) held.artifacts.swap(copy.artifacts);
}

std::vector<JoinTable::Lost> JoinTable::Expire(base::MonotonicTime now) {
  std::vector<Lost> lost;
  for (auto join = joins_.begin(); join != joins_.end();) {
    const auto& [predecessors, parts, give_up, waits_since, run, number] = join->second;
    if (now < give_up) {
      ++join;
      continue;
    }
    std::string there;
    for (const auto& [stage, part] : parts) there += (there.empty() ? "" : ", ") + stage;
    std::string missing;
    for (const std::string& stage : predecessors) {
      if (!parts.contains(stage)) missing += (missing.empty() ? "" : ", ") + stage;
    }
    lost.push_back(
        {parts.begin()->second.message.header,
         base::MakeError(absl::StatusCode::kDeadlineExceeded, "BRANCH_LOST",
                         "the outputs of " + missing + " did not come (those of " + there + " did)",
                         {{"missing", missing}})});
    join = Erase(join);
  }
  return lost;
}

std::vector<message::Header> JoinTable::Waiting(base::MonotonicTime now, base::Duration pause,
                                                std::size_t most) {
  std::vector<Join*> due;
  for (auto& [key, join] : joins_) {
    if (now - join.waits_since >= pause) due.push_back(&join);
  }
  const auto named = static_cast<std::ptrdiff_t>(std::min(most, due.size()));
  std::ranges::partial_sort(due, due.begin() + named, {}, [](const Join* join) {
    return std::pair(join->waits_since, join->number);
  });
  std::vector<message::Header> waiting;
  for (auto join = due.begin(); join != due.begin() + named; ++join) {
    (*join)->waits_since = now;
    waiting.push_back((*join)->parts.begin()->second.message.header);
  }
  return waiting;
}

std::vector<WorkItem> JoinTable::Take(const std::function<bool(const message::Header&)>& wanted) {
  std::vector<WorkItem> taken;
  for (auto join = joins_.begin(); join != joins_.end();) {
    auto& parts = join->second.parts;
    if (!std::ranges::all_of(
            parts, [&](const auto& part) { return wanted(part.second.message.header); })) {
      ++join;
      continue;
    }
    for (auto& [stage, part] : parts) {
      SumOf(part) -= BytesOf(part);
      taken.push_back(std::move(part));
    }
    join = joins_.erase(join);
  }
  return taken;
}

void JoinTable::RemovePart(const message::Header& edge, std::uint32_t attempt) {
  const auto join = joins_.find({edge.uid, edge.stage});
  if (join == joins_.end()) return;
  auto& parts = join->second.parts;
  const auto part = parts.find(edge.from);
  if (part == parts.end()) return;
  const message::Header& held = part->second.message.header;
  if (held.run != edge.run || held.attempt >= attempt) return;
  if (parts.size() == 1) {
    Erase(join);
    return;
  }
  SumOf(part->second) -= BytesOf(part->second);
  parts.erase(part);
}

std::size_t JoinTable::Remove(const base::Uid& uid, std::uint64_t run) {
  std::size_t removed = 0;
  // The empty stage sorts before every stage of the job.
  auto join = joins_.lower_bound({uid, ""});
  while (join != joins_.end() && join->first.first == uid) {
    if (join->second.run > run) {
      ++join;
      continue;
    }
    removed += join->second.parts.size();
    join = Erase(join);
  }
  return removed;
}

JoinTable::Joins::iterator JoinTable::Erase(Joins::iterator join) {
  for (const auto& [stage, part] : join->second.parts) SumOf(part) -= BytesOf(part);
  return joins_.erase(join);
}

}  // namespace onepiece::runtime
