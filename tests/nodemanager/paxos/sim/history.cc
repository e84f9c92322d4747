#include "tests/nodemanager/paxos/sim/history.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

/// Does `operation` to `value`. Returns false when the operation's answer does not fit.
bool Do(const Operation& operation, std::uint64_t& value) {
  switch (operation.kind) {
    case Operation::Kind::kRead:
      return operation.before == value;
    case Operation::Kind::kWrite:
      value = operation.written;
      return true;
    case Operation::Kind::kCompareAndSet:
      if (operation.before != value) return false;
      if (value == operation.expected) value = operation.written;
      return true;
  }
  return false;
}

bool Changes(const Operation& operation) {
  return operation.kind == Operation::Kind::kWrite ||
         (operation.kind == Operation::Kind::kCompareAndSet &&
          (operation.returned == Operation::kNever || operation.before == operation.expected));
}

/// Decides whether operations without answer happened. Values are unique. If somebody met the value
/// of such an operation, it happened before the first answer that shows the value. If nobody met
/// its value, it can be left out: in any order that has it, no operation looks at the register
/// between it and the next change.
std::vector<Operation> Settle(const std::vector<Operation>& operations) {
  std::unordered_map<std::uint64_t, Nanos> met;
  for (const Operation& operation : operations) {
    if (operation.kind == Operation::Kind::kWrite || operation.returned == Operation::kNever) {
      continue;
    }
    const auto [place, first] = met.emplace(operation.before, operation.returned);
    if (!first) place->second = std::min(place->second, operation.returned);
  }
  // A compare-and-set that is found to have happened met a value itself, which may decide another
  // operation.
  std::vector<Operation> settled = operations;
  for (bool more = true; more;) {
    more = false;
    for (Operation& operation : settled) {
      const auto seen = met.find(operation.written);
      if (operation.returned != Operation::kNever || !Changes(operation) || seen == met.end()) {
        continue;
      }
      more = true;
      operation.before = operation.expected;
      operation.returned = seen->second;
      if (operation.kind != Operation::Kind::kCompareAndSet) continue;
      const auto [place, first] = met.emplace(operation.before, operation.returned);
      if (!first) place->second = std::min(place->second, operation.returned);
    }
  }
  std::erase_if(settled,
                [](const Operation& operation) { return operation.returned == Operation::kNever; });
  return settled;
}

/// The search of Wing and Gong over a list of calls and returns in the order of time. An operation
/// that is chosen as the next one leaves the list, and comes back when the choice leads nowhere.
class Search {
 public:
  explicit Search(std::vector<Operation> operations) : operations_(std::move(operations)) {
    std::vector<Node> order;
    for (std::uint32_t i = 0; i < operations_.size(); ++i) {
      order.push_back({operations_[i].called, i, true});
      order.push_back({operations_[i].returned, i, false});
    }
    // A return and a call at one instant overlap, so the call comes first.
    std::stable_sort(order.begin(), order.end(), [](const Node& a, const Node& b) {
      return a.at != b.at ? a.at < b.at : a.call && !b.call;
    });
    nodes_.push_back({});
    nodes_.insert(nodes_.end(), order.begin(), order.end());
    pair_.resize(nodes_.size());
    std::vector<std::uint32_t> call_of(operations_.size());
    for (std::uint32_t i = 1; i < nodes_.size(); ++i) {
      if (nodes_[i].call) {
        call_of[nodes_[i].operation] = i;
      } else {
        pair_[call_of[nodes_[i].operation]] = i;
      }
    }
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].next = i + 1 < nodes_.size() ? i + 1 : 0;
      nodes_[i].previous = i == 0 ? static_cast<std::uint32_t>(nodes_.size() - 1) : i - 1;
    }
    done_.resize(operations_.size() / 64 + 1);
  }

  bool Run() {
    std::uint64_t value = 0;
    std::uint32_t at = nodes_[0].next;
    while (nodes_[0].next != 0) {
      if (nodes_[at].call) {
        std::uint64_t after = value;
        const std::uint32_t index = nodes_[at].operation;
        if (Do(operations_[index], after) && FirstTime(index, after)) {
          taken_.push_back({at, value});
          value = after;
          Lift(at);
          at = nodes_[0].next;
        } else {
          at = nodes_[at].next;
        }
        continue;
      }
      // This is the return of an operation that was not chosen, so the last choice was wrong.
      if (taken_.empty()) return false;
      const Choice last = taken_.back();
      taken_.pop_back();
      value = last.value;
      Unlift(last.node);
      at = nodes_[last.node].next;
    }
    return true;
  }

 private:
  struct Node {
    Nanos at = 0;
    std::uint32_t operation = 0;
    bool call = false;
    std::uint32_t previous = 0, next = 0;
  };
  struct Choice {
    std::uint32_t node = 0;
    std::uint64_t value = 0;  // The value before this choice.
  };
  struct Place {
    std::vector<std::uint64_t> done;
    std::uint64_t value = 0;
    bool operator==(const Place&) const = default;
  };
  struct HashPlace {
    std::size_t operator()(const Place& place) const {
      std::uint64_t hash = place.value;
      for (const std::uint64_t word : place.done) hash = Mix(hash, word);
      return hash;
    }
  };

  /// Marks `index` as done, unless this set of done operations was met with this value before.
  bool FirstTime(std::uint32_t index, std::uint64_t value) {
    done_[index / 64] |= std::uint64_t{1} << (index % 64);
    if (seen_.insert({done_, value}).second) return true;
    done_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
    return false;
  }
  void Unlink(std::uint32_t node) {
    nodes_[nodes_[node].previous].next = nodes_[node].next;
    nodes_[nodes_[node].next].previous = nodes_[node].previous;
  }
  void Relink(std::uint32_t node) {
    nodes_[nodes_[node].previous].next = node;
    nodes_[nodes_[node].next].previous = node;
  }
  void Lift(std::uint32_t call) {
    Unlink(call);
    Unlink(pair_[call]);
  }
  void Unlift(std::uint32_t call) {
    Relink(pair_[call]);
    Relink(call);
    const std::uint32_t index = nodes_[call].operation;
    done_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
  }

  std::vector<Operation> operations_;
  std::vector<Node> nodes_;          // A linked ring. Node 0 is its head.
  std::vector<std::uint32_t> pair_;  // By call: its return.
  std::vector<std::uint64_t> done_;  // One bit for each operation.
  std::vector<Choice> taken_;
  std::unordered_set<Place, HashPlace> seen_;
};

}  // namespace

std::string Describe(const Operation& operation) {
  std::string text = absl::StrCat("client ", operation.client, " key ", operation.key, " ");
  switch (operation.kind) {
    case Operation::Kind::kRead:
      absl::StrAppend(&text, "read");
      break;
    case Operation::Kind::kWrite:
      absl::StrAppend(&text, "write ", operation.written);
      break;
    case Operation::Kind::kCompareAndSet:
      absl::StrAppend(&text, "set ", operation.written, " if ", operation.expected);
      break;
  }
  if (operation.returned == Operation::kNever) {
    return absl::StrCat(text, " [", operation.called / kMicrosecond, " us, no answer]");
  }
  if (operation.kind != Operation::Kind::kWrite) absl::StrAppend(&text, " met ", operation.before);
  return absl::StrCat(text, " [", operation.called / kMicrosecond, ", ",
                      operation.returned / kMicrosecond, " us]");
}

std::optional<std::string> FindNonLinearisable(const std::vector<Operation>& history) {
  std::vector<std::vector<Operation>> registers;
  for (const Operation& operation : history) {
    if (registers.size() <= operation.key) registers.resize(operation.key + 1);
    registers[operation.key].push_back(operation);
  }
  for (const std::vector<Operation>& operations : registers) {
    if (Search(Settle(operations)).Run()) continue;
    std::string text = "no order explains:";
    for (const Operation& operation : operations) {
      absl::StrAppend(&text, "\n  ", Describe(operation));
    }
    return text;
  }
  return std::nullopt;
}

}  // namespace onepiece::paxos::sim
