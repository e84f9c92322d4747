// What a replica finds out about itself: whether its state is that of the majority, how far it is
// behind, and what it can do.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/corrupt_marker.h"
#include "nodemanager/replication/replica_driver.h"

namespace onepiece::nodemanager {

// Takes from a message what consensus does not ask for.
void ReplicaDriver::Heed(const paxos::Message& message, paxos::Time now) {
  hashes_.Hear(message);
  if (const auto* accept = std::get_if<paxos::Accept>(&message.body)) {
    leaders_chosen_ = std::max(leaders_chosen_, accept->chosen);
  } else if (const auto* accepted = std::get_if<paxos::Accepted>(&message.body)) {
    const paxos::Seat* seat = replica_->members().Find(message.from);
    if (options_.observers.round_trip && seat != nullptr && accepted->sent <= now)
      options_.observers.round_trip(seat->name, now - accepted->sent);
  }
}

void ReplicaDriver::StampHashes(std::vector<paxos::Message>& messages) const {
  for (paxos::Message& message : messages) hashes_.Stamp(message);
}

// A corrupt replica stays corrupt over restarts. Nobody knows how its state came to differ, so its
// snapshot may be wrong too.
bool ReplicaDriver::LoadCorruption() {
  std::optional<std::string> why = ReadCorruptMarker(options_.data_dir, identity_.replica);
  if (!why) return false;
  fenced_ = true;
  health_ = v1::ReplicaStatus::CORRUPT;
  health_detail_ = *std::move(why);
  spdlog::error("op=corrupt error=\"{}\"", health_detail_);
  return true;
}

// Ends this replica when its state differs from that of the majority.
//
// It is silent from then on, as after a crash, and consensus is safe however a replica crashes. Its
// promises and its log are probably sound, and its votes would be as good as ever: an entry is
// chosen by what is on the disks, not by what the entries did. But memory, disk or program have
// failed here in a way that nobody has looked at, and the same fault may strike the next entry that
// it accepts. So the group goes on with one replica less, which is what it was made for, until the
// operator has given this seat an empty folder.
//
// Reads are over too: the term ends under replica_mutex_, so no Confirm() covers what was read from
// the wrong state. What it answered before the difference was found cannot be taken back.
void ReplicaDriver::FenceIfOdd() {
  std::string why;
  std::vector<paxos::Message> farewell;
  {
    const base::MutexLock lock(replica_mutex_);
    hashes_.Count(replica_->members(), id_);
    const std::optional<StateHashes::Odd> odd = hashes_.odd();
    if (!odd) return;
    why = absl::StrFormat("after slot %d its state has the hash %08x, and the majority's has %08x",
                          odd->slot.value, odd->own, odd->agreed);
    // What still waits for the disk is never sent, as after a crash. Without a successor an
    // election finds the next leader.
    paxos::Outputs out;
    if (replica_->role() == paxos::Role::kLeader) replica_->StepDown(BootNow(), out).IgnoreError();
    farewell = std::move(out.early);
    health_ = v1::ReplicaStatus::CORRUPT;
    health_detail_ = why;
    term_ = LeaderTerm{};
    ready_at_ = {};
    replica_.reset();
  }
  spdlog::error("op=corrupt error=\"{}\"", why);
  fenced_ = true;
  std::erase_if(farewell, [&](const paxos::Message& message) { return message.to == id_; });
  transport_.Send(std::move(farewell));
  // If the mark cannot be written, a restart finds the difference again at a later slot.
  if (const absl::Status marked = WriteCorruptMarker(options_.data_dir, id_, why); !marked.ok())
    spdlog::error("op=corrupt error=\"{}\"", base::Message(marked));
  queue_.Close();
  out_ = {};
  to_self_.clear();
  PublishRole();
}

// A replica that is nearer to the leader than the log's tail is fed from the log. One that is
// farther gets a snapshot, or soon needs one.
void ReplicaDriver::CheckLag() {
  if (health_ != v1::ReplicaStatus::OK && health_ != v1::ReplicaStatus::CATCHING_UP) return;
  const paxos::Slot applied = applier_.applied();
  const std::uint64_t lag = leaders_chosen_ > applied ? leaders_chosen_ - applied : 0;
  const std::uint64_t far = std::max<std::uint64_t>(options_.paxos.keep_slots, 1);
  // It is well again only much nearer, so that its health does not flicker.
  const bool behind = lag >= far || (health_ == v1::ReplicaStatus::CATCHING_UP && lag > far / 4);
  health_ = behind ? v1::ReplicaStatus::CATCHING_UP : v1::ReplicaStatus::OK;
  health_detail_ = behind ? absl::StrCat(lag, " slots behind the leader") : "";
}

void ReplicaDriver::PublishFitness() {
  ReplicaFitness fitness;
  {
    const base::MutexLock lock(replica_mutex_);
    CheckLag();
    if (replica_ != nullptr && health_ == v1::ReplicaStatus::OK) {
      const paxos::ReplicaId leader = replica_->leader();
      fitness.takes_part = replica_->members().Votes(id_);
      fitness.knows_leader = leader != paxos::ReplicaId{} && (leader != id_ || replica_->IsReady());
    }
  }
  if (std::exchange(told_fitness_, fitness) == fitness || !on_fitness_) return;
  on_fitness_(fitness);
}

}  // namespace onepiece::nodemanager
