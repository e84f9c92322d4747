#include "stages/collectives/gloo_world.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "stages/collectives/checked_group.h"
#include "stages/collectives/element.h"
#include "stages/collectives/rendezvous.h"
#include "stages/collectives/slots.h"

namespace onepiece::collectives {
namespace {

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// A member that ended the group writes down why. So long the others look for that.
constexpr std::chrono::milliseconds kVerdictTime(300);

absl::Status GlooFailed(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInternal, "GLOO_FAILED", what);
}

std::chrono::milliseconds TimeLeft(sdk::Group::Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - base::SystemClock().Now());
  return std::max(left, std::chrono::milliseconds(1));  // gloo takes none for endless.
}

}  // namespace

struct GlooWorld::State {
  GlooWorldOptions options;
  std::shared_ptr<gloo::transport::Device> device;
  std::uint64_t epoch = 0;
  /// How often a group of this key was made.
  std::map<std::uint64_t, int> made;
};

/// The members send each other a header with each message, as those of the fabric do.
class GlooWorld::Group final : public CheckedGroup {
 public:
  Group(State& state, sdk::GroupDescriptor descriptor, int rank)
      : CheckedGroup(std::move(descriptor), rank), state_(state) {}

  /// Connects the members.
  absl::Status Connect(std::uint64_t key) {
    if (size() == 1) return absl::OkStatus();
    const std::string name = std::to_string(descriptor().epoch) + "-" + std::to_string(key) + "-" +
                             std::to_string(++state_.made[key]);
    try {
      files_.emplace(state_.options.folder);
      store_.emplace(name, *files_);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
      context->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(state_.options.group_time));
      context->connectFullMesh(*store_, state_.device);
      context_ = std::move(context);
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return NotConnected(error.what());
    }
  }

 private:
  /// Each member has written its address under its rank.
  absl::Status NotConnected(const std::string& what) {
    for (int i = 0; i < size(); ++i) {
      if (i == rank() || !Read(std::to_string(i)).empty()) continue;
      return sdk::RankError(absl::StatusCode::kDeadlineExceeded, "RANK_SILENT", i,
                            "it did not make the group in time");
    }
    return GlooFailed(what);
  }

  using Words = std::array<std::uint64_t, 4>;
  /// gloo reads and writes this memory until the buffers are destroyed.
  struct Message {
    int rank = 0;
    Bytes place;  ///< Of one that is received.
    std::unique_ptr<Words> words = std::make_unique<Words>();
    Buffer header = nullptr;
    Buffer data = nullptr;
  };

  absl::Status DoBroadcast(const Call& call, Bytes data, int root, Deadline deadline) override {
    Begin(call, 0);
    if (rank() != root) ReceiveFrom(root, data);
    for (int i = 0; i < size() && rank() == root; ++i) {
      if (i != root) SendTo(i, data);
    }
    return Finish(deadline);
  }

  absl::Status DoAllGather(const Call& call, Sizes sizes, Bytes all, Deadline deadline) override {
    Begin(call, 0);
    return Gather(sizes, all, deadline);
  }

  absl::Status DoReduceScatter(const Call& call, ConstBytes all, Sizes sizes, Bytes part,
                               Arithmetic arithmetic, Deadline deadline) override {
    Begin(call, 0);
    return ReduceParts(all, sizes, part, arithmetic, deadline);
  }

  absl::Status DoAllReduce(const Call& call, Bytes data, Arithmetic arithmetic,
                           Deadline deadline) override {
    const auto [sizes, begin] = EvenParts(data.size(), arithmetic.type);
    std::vector<std::byte> part(sizes[static_cast<std::size_t>(rank())]);
    Begin(call, 0);
    ONEPIECE_RETURN_IF_ERROR(ReduceParts(data, sizes, part, arithmetic, deadline));
    std::ranges::copy(part, data.subspan(begin).begin());
    Begin(call, 1);
    return Gather(sizes, data, deadline);
  }

  absl::Status DoAllToAll(const Call& call, ConstBytes sent, Sizes send_sizes, Bytes received,
                          Sizes receive_sizes, Deadline deadline) override {
    Begin(call, 0);
    for (int i = 0; i < size(); ++i) {
      const std::size_t to_send = send_sizes[static_cast<std::size_t>(i)];
      const std::size_t to_receive = receive_sizes[static_cast<std::size_t>(i)];
      if (i != rank()) {
        SendTo(i, sent.first(to_send));
        ReceiveFrom(i, received.first(to_receive));
      }
      sent = sent.subspan(to_send);
      received = received.subspan(to_receive);
    }
    return Finish(deadline);
  }

  absl::Status DoStartExchange(const Call& call, ConstBytes sent, int to, Bytes received, int from,
                               Deadline /*deadline*/) override {
    Begin(call, 0);
    SendTo(to, sent);
    ReceiveFrom(from, received);
    return absl::OkStatus();
  }

  absl::Status DoFinishExchange(Deadline deadline) override { return Finish(deadline); }

  absl::Status DoBarrier(const Call& call, Deadline deadline) override {
    Begin(call, 0);
    for (int i = 0; i < size(); ++i) {
      if (i == rank()) continue;
      SendTo(i, {});
      ReceiveFrom(i, {});
    }
    return Finish(deadline);
  }

  absl::Status Gather(Sizes sizes, Bytes all, Deadline deadline) {
    std::size_t at = 0;
    for (int i = 0; i < size(); ++i) {
      const Bytes part = all.subspan(at, sizes[static_cast<std::size_t>(i)]);
      at += part.size();
      if (i != rank()) {
        ReceiveFrom(i, part);
        continue;
      }
      for (int to = 0; to < size(); ++to) {
        if (to != i) SendTo(to, part);
      }
    }
    return Finish(deadline);
  }

  absl::Status ReduceParts(ConstBytes all, Sizes sizes, Bytes part, Arithmetic arithmetic,
                           Deadline deadline) {
    std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(size()));
    ConstBytes own;
    for (int i = 0; i < size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const ConstBytes theirs = all.first(sizes[at]);
      all = all.subspan(sizes[at]);
      if (i == rank()) {
        own = theirs;
        continue;
      }
      parts[at].resize(part.size());
      SendTo(i, theirs);
      ReceiveFrom(i, parts[at]);
    }
    ONEPIECE_RETURN_IF_ERROR(Finish(deadline));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const ConstBytes from = static_cast<int>(i) == rank() ? own : ConstBytes(parts[i]);
      if (i == 0) {
        std::ranges::copy(from, part.begin());
      } else {
        Reduce(arithmetic.type, arithmetic.reduction, from, part);
      }
    }
    return absl::OkStatus();
  }

  void Begin(const Call& call, std::uint8_t phase) {
    call_ = call;
    phase_ = phase;
    Forget();
  }
  void Forget() {
    outgoing_.clear();
    incoming_.clear();
  }

  [[nodiscard]] Words HeaderOf(std::size_t bytes) const {
    return {std::uint64_t{call_.number} << 32 | static_cast<std::uint64_t>(call_.operation),
            call_.detail, call_.sizes, bytes};
  }
  // gloo matches sends with receives by this number.
  [[nodiscard]] std::uint64_t Slot(bool data) const {
    return std::uint64_t{call_.number} * 4 + phase_ * 2U + (data ? 1U : 0U);
  }

  void SendTo(int rank, ConstBytes bytes) {
    Message& message = outgoing_.emplace_back(Message{.rank = rank});
    *message.words = HeaderOf(bytes.size());
    Guard(rank, [&] {
      message.header = context_->createUnboundBuffer(message.words.get(), sizeof(Words));
      message.header->send(rank, Slot(false));
      if (bytes.empty()) return;
      // gloo has one type of buffer for both directions; it only reads this one.
      message.data =
          context_->createUnboundBuffer(const_cast<std::byte*>(bytes.data()), bytes.size());
      message.data->send(rank, Slot(true));
    });
  }

  void ReceiveFrom(int rank, Bytes place) {
    Message& message = incoming_.emplace_back(Message{.rank = rank, .place = place});
    Guard(rank, [&] {
      message.header = context_->createUnboundBuffer(message.words.get(), sizeof(Words));
      message.header->recv(rank, Slot(false));
    });
  }

  /// Runs what may throw, and keeps the first rank with which it did.
  template <typename Body>
  void Guard(int rank, Body body) {
    if (failed_.has_value()) return;
    try {
      body();
    } catch (const std::exception& error) {
      failed_ = {rank, error.what()};
    }
  }

  /// Ranks are awaited in their order, but all send at once. So the first one that does not come is
  /// the one that is missing.
  absl::Status Finish(Deadline deadline) {
    if (state_.epoch > descriptor().epoch) {
      return sdk::RankError(absl::StatusCode::kAborted, "GROUP_ENDED", rank(),
                            "this worker is in a later epoch");
    }
    for (Message& message : incoming_) {
      Guard(message.rank, [&] { message.header->waitRecv(TimeLeft(deadline)); });
      if (failed_.has_value()) return Fail(deadline);
      if (*message.words != HeaderOf(message.place.size())) return Differ(message);
      if (message.place.empty()) continue;
      Guard(message.rank, [&] {
        message.data = context_->createUnboundBuffer(message.place.data(), message.place.size());
        message.data->recv(message.rank, Slot(true));
      });
    }
    for (Message& message : incoming_) {
      if (message.data == nullptr) continue;
      Guard(message.rank, [&] { message.data->waitRecv(TimeLeft(deadline)); });
    }
    for (Message& message : outgoing_) {
      Guard(message.rank, [&] {
        message.header->waitSend(TimeLeft(deadline));
        if (message.data != nullptr) message.data->waitSend(TimeLeft(deadline));
      });
    }
    return failed_.has_value() ? Fail(deadline) : absl::OkStatus();
  }

  absl::Status Differ(const Message& message) {
    const auto called = static_cast<Operation>((*message.words)[0] & 0xFF);
    return End(absl::StatusCode::kAborted, "RANK_DIFFERS", message.rank,
               std::string("it called ") + NameOf(called) + ", this rank " +
                   NameOf(call_.operation) + ", or their roots, types or sizes differ");
  }

  /// A wait that fails ends the whole context, and so the others' connections to this rank. They
  /// look here for whom it waited.
  absl::Status Fail(Deadline deadline) {
    const auto [rank, what] = *failed_;
    if (base::SystemClock().Now() >= deadline) {
      return End(absl::StatusCode::kDeadlineExceeded, "RANK_SILENT", rank, what);
    }
    const std::string verdict = Read("verdict-" + std::to_string(rank));
    const std::size_t cut = verdict.find(' ');
    if (cut == std::string::npos) {
      return End(absl::StatusCode::kUnavailable, "RANK_LOST", rank, what);
    }
    const int named = std::atoi(verdict.c_str());
    const std::string reason = verdict.substr(cut + 1);
    if (named == this->rank()) {
      return End(absl::StatusCode::kAborted,
                 reason == "RANK_DIFFERS" ? "RANK_DIFFERS" : "GROUP_ENDED", rank,
                 "it ended the group");
    }
    const auto code = reason == "RANK_SILENT" ? absl::StatusCode::kDeadlineExceeded
                      : reason == "RANK_LOST" ? absl::StatusCode::kUnavailable
                                              : absl::StatusCode::kAborted;
    return End(code, reason, named, "so rank " + std::to_string(rank) + " says");
  }

  absl::Status End(absl::StatusCode code, const std::string& reason, int rank,
                   const std::string& message) {
    const std::string verdict = std::to_string(rank) + " " + reason;
    try {
      store_->set("verdict-" + std::to_string(this->rank()), {verdict.begin(), verdict.end()});
    } catch (const std::exception&) {
      // The others find out by their deadline.
    }
    Forget();
    context_.reset();
    return sdk::RankError(code, reason, rank, message);
  }

  /// What stands under a key of the group; empty when nothing comes to stand there.
  std::string Read(const std::string& key) {
    try {
      store_->wait({key}, kVerdictTime);
      const std::vector<char> bytes = store_->get(key);
      return {bytes.begin(), bytes.end()};
    } catch (const std::exception&) {
      return "";
    }
  }

  State& state_;
  std::optional<gloo::rendezvous::FileStore> files_;
  std::optional<gloo::rendezvous::PrefixStore> store_;
  std::shared_ptr<gloo::Context> context_;
  Call call_;
  std::uint8_t phase_ = 0;
  std::vector<Message> outgoing_;
  std::vector<Message> incoming_;
  std::optional<std::pair<int, std::string>> failed_;
};

GlooWorld::GlooWorld(std::unique_ptr<State> state) : state_(std::move(state)) {}
GlooWorld::~GlooWorld() = default;
std::uint32_t GlooWorld::index() const { return state_->options.index; }
std::uint32_t GlooWorld::workers() const { return state_->options.workers; }

absl::StatusOr<std::unique_ptr<GlooWorld>> GlooWorld::Open(const GlooWorldOptions& options) {
  if (options.workers > kMaxWorkers || options.index >= options.workers) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_WORLD",
        "no worker " + std::to_string(options.index) + " among " + std::to_string(options.workers));
  }
  auto state = std::make_unique<State>();
  state->options = options;
  try {
    gloo::transport::tcp::attr attributes;
    attributes.iface = options.interface;
    state->device = gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    return GlooFailed(options.interface + ": " + error.what());
  }
  return std::unique_ptr<GlooWorld>(new GlooWorld(std::move(state)));
}

absl::StatusOr<std::unique_ptr<sdk::Group>> GlooWorld::MakeGroup(
    const sdk::GroupDescriptor& descriptor) {
  ONEPIECE_ASSIGN_OR_RETURN(const int rank, RankIn(descriptor, index(), workers()));
  if (descriptor.epoch < state_->epoch) return EpochTooSmall(descriptor, state_->epoch);
  state_->epoch = descriptor.epoch;
  auto group = std::make_unique<Group>(*state_, descriptor, rank);
  ONEPIECE_RETURN_IF_ERROR(group->Connect(KeyOf(descriptor).hash));
  return group;
}

}  // namespace onepiece::collectives
