// Our database, as instances and proxies use it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/local/process.h"
#include "cluster/local/resources.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/job_records.h"
#include "cluster/node/outbox.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/result_part.h"
#include "cluster/values/remote_values.h"
#include "grpcpp/generic/generic_stub.h"
#include "nlohmann/json.hpp"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/bench/database/store.h"
#include "tests/eventually.h"

namespace onepiece::bench {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kLimit = 20s;
constexpr std::int64_t kBudgetBytes = std::int64_t{2} << 30;

absl::Status Compare(std::size_t bytes, std::byte front, std::byte back, const Value& expected) {
  const bool same = bytes == expected.bytes.size() && front == expected.bytes.front() &&
                    back == expected.bytes.back();
  return same ? absl::OkStatus() : absl::DataLossError("another value came back");
}

/// The state that the sessions of one server share.
struct Shared {
  std::unique_ptr<fabric::Fabric> fabric;
  node::ClusterView view;
  v1::Endpoint database;
  /// Results are written once, so every turn has uids of its own.
  std::uint32_t turn = 0;

  [[nodiscard]] base::Uid UidOf(std::uint32_t key) const {
    std::array<std::uint8_t, 16> bytes{};
    bytes[6] = 0x80;  // UUIDv8
    bytes[8] = 0x80;
    for (int i = 0; i < 4; ++i) {
      bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(turn >> (8 * i));
      bytes[static_cast<std::size_t>(12 + i)] = static_cast<std::uint8_t>(key >> (8 * i));
    }
    return base::Uid(bytes);
  }
};

message::Message MessageOf(const base::Uid& uid, const Value& value) {
  message::Message message;
  message.header.kind = message::Kind::kResult;
  message.header.uid = uid;
  message.header.app = "bench";
  message.header.ingress_time = base::SystemClock().WallNow();
  message.header.deadline = base::SystemClock().Now() + 1h;
  message::Artifact artifact;
  artifact.name = "video";
  artifact.media_type = "video/mp4";
  artifact.shape = {static_cast<std::int64_t>(value.bytes.size())};
  artifact.sha256 = value.sha256;
  artifact.data = message::Buffer(value.owner, value.bytes);
  message.artifacts.push_back(std::move(artifact));
  return message;
}

class OurSession final : public Session {
 public:
  OurSession(const Shared& shared, Door door, int number)
      : shared_(shared),
        door_(door),
        outbox_(node::Outbox::Create(*shared.fabric, shared.view,
                                     {.node_id = absl::StrCat("bench-", number)})),
        values_(values::RemoteValues::Create(
            *shared.fabric,
            {.node_id = absl::StrCat("bench-", number), .address = shared.database.address()})),
        stub_(rpc::MakeChannel(shared.database.address())) {}

  absl::Status Put(std::uint32_t key, const Value& value) override {
    const message::Message message = MessageOf(shared_.UidOf(key), value);
    const base::MonotonicTime deadline = base::SystemClock().Now() + kLimit;
    if (value.bytes.size() < values::kDirectBytes) {
      return outbox_->Deliver(message, node::Destination::Nodes({shared_.database}), deadline)
          .status();
    }
    ONEPIECE_ASSIGN_OR_RETURN(const bool stored, values_->Put(message, deadline));
    return stored ? absl::OkStatus() : absl::ResourceExhaustedError("the value was not wanted");
  }

  absl::Status Get(std::uint32_t key, const Value& expected) override {
    const base::Uid uid = shared_.UidOf(key);
    const base::MonotonicTime deadline = base::SystemClock().Now() + kLimit;
    // A put over the ring is done when the ring has it. The database takes it out a moment later.
    while (true) {
      const absl::Status status =
          door_ == Door::kGrpc ? Fetch(uid, expected) : Read(uid, expected, deadline);
      if (!absl::IsNotFound(status) || base::SystemClock().Now() > deadline) return status;
      testing::Pause(100us);
    }
  }

 private:
  absl::Status Read(const base::Uid& uid, const Value& expected, base::MonotonicTime deadline) {
    ONEPIECE_ASSIGN_OR_RETURN(const message::Buffer got, values_->Get({.uid = uid}, deadline));
    return Compare(got.size(), got.bytes().front(), got.bytes().back(), expected);
  }
  absl::Status Fetch(const base::Uid& uid, const Value& expected) {
    v1::FetchResultRequest request;
    request.set_name(node::NameOfUid(uid));
    grpc::ClientContext context;
    rpc::SetTimeout(context, kLimit);
    const std::string serialized = request.SerializeAsString();
    const grpc::Slice slice(serialized);
    const grpc::ByteBuffer asked(&slice, 1);
    grpc::CompletionQueue queue;
    const auto call =
        stub_.PrepareCall(&context, "/onepiece.v1.DatabaseService/FetchResult", &queue);
    // One operation is under way at a time, so the tags mean nothing.
    const auto completes = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    if (completes()) {
      call->WriteLast(asked, {}, nullptr);
      completes();
    }
    std::vector<grpc::Slice> pieces;  // The value, in the transport's memory.
    std::size_t bytes = 0;
    grpc::ByteBuffer received;
    for (call->Read(&received, nullptr); completes(); call->Read(&received, nullptr)) {
      std::optional<rpc::ResultPart> part = rpc::DecodePart(std::move(received));
      if (!part.has_value()) return absl::DataLossError("not a part of a result");
      bytes += part->chunk_bytes();
      std::ranges::move(part->chunk, std::back_inserter(pieces));
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    completes();
    queue.Shutdown();
    if (!status.ok()) return rpc::FromGrpc(status);
    if (bytes == 0) return absl::DataLossError("nothing came");
    return Compare(bytes, static_cast<std::byte>(*pieces.front().begin()),
                   static_cast<std::byte>(*(pieces.back().end() - 1)), expected);
  }

  const Shared& shared_;
  const Door door_;
  const std::unique_ptr<node::Outbox> outbox_;
  const std::unique_ptr<values::RemoteValues> values_;
  grpc::GenericStub stub_;
};

/// Waits for the file that a service writes when it is ready.
absl::StatusOr<std::string> AwaitAddress(const std::string& ready_file) {
  const base::MonotonicTime deadline = base::SystemClock().Now() + kLimit;
  while (base::SystemClock().Now() < deadline) {
    std::ifstream file(ready_file);
    const auto ready = nlohmann::json::parse(file, nullptr, false);
    if (ready.is_object()) return ready.value("address", "");
    testing::Pause(10ms);
  }
  return absl::DeadlineExceededError("no service wrote " + ready_file);
}

class Ours final : public Store {
 public:
  Ours(std::string folder, Door door) : folder_(std::move(folder)), door_(door) {}
  ~Ours() override {
    for (const local::ProcessId& process : processes_) local::KillAndWait(process, kLimit);
    shared_.fabric.reset();
    (void)fabric::UnlinkStale(cluster_);
  }

  absl::Status Start() {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string manager,
                              Spawn("nodemanager", {"--cluster-id", cluster_}));
    ONEPIECE_ASSIGN_OR_RETURN(const std::string address,
                              Spawn("database", {"--nodemanager", manager, "--fabric", Fabric(),
                                                 "--budget-bytes", absl::StrCat(kBudgetBytes)}));
    ONEPIECE_ASSIGN_OR_RETURN(shared_.fabric, fabric::Fabric::Open(Fabric()));
    return AwaitDatabase(manager);
  }

  absl::StatusOr<std::unique_ptr<Session>> Connect() override {
    return std::make_unique<OurSession>(shared_, door_, ++sessions_);
  }
  absl::Status Clear() override {
    v1::PurgeResultsRequest request;
    request.set_all(true);
    v1::DatabaseService::Stub stub(rpc::MakeChannel(shared_.database.address()));
    ++shared_.turn;
    return rpc::Call(stub, &v1::DatabaseService::Stub::PurgeResults, request, kLimit).status();
  }
  [[nodiscard]] pid_t pid() const override { return processes_.back().pid; }

 private:
  [[nodiscard]] std::string Fabric() const { return "shm://" + cluster_; }

  absl::StatusOr<std::string> Spawn(const std::string& role, std::vector<std::string> more) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string program, local::ProgramPath("onepiece-" + role));
    const std::string base = folder_ + "/" + role;
    std::vector<std::string> arguments = {
        program,        "--insecure", "--listen", "127.0.0.1:0", "--ready-file",
        base + ".json", "--data-dir", base,       "--node-id",   role + "-1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ONEPIECE_ASSIGN_OR_RETURN(processes_.emplace_back(), local::Spawn({.arguments = arguments,
                                                                       .output_path = base + ".log",
                                                                       .clean_environment = true}));
    return AwaitAddress(base + ".json");
  }

  absl::Status AwaitDatabase(const std::string& manager) {
    v1::NodeManagerService::Stub stub(rpc::MakeChannel(manager));
    grpc::ClientContext context;
    rpc::SetTimeout(context, kLimit);
    const auto reader = stub.WatchRouting(&context, {});
    v1::RoutingTable table;
    while (reader->Read(&table)) {
      if (table.databases_size() == 0) continue;
      shared_.database = table.databases(0);
      shared_.view.SetRouting(std::make_shared<const node::Routing>(table));
      context.TryCancel();
      return absl::OkStatus();
    }
    return absl::DeadlineExceededError("the database did not register");
  }

  const std::string folder_;
  const Door door_;
  const std::string cluster_ = "bench-" + base::Uid::GenerateRandom().ToString();
  std::vector<local::ProcessId> processes_;
  Shared shared_;
  int sessions_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> StartOurs(const std::string& folder, Door door) {
  std::filesystem::create_directories(folder);
  auto store = std::make_unique<Ours>(folder, door);
  ONEPIECE_RETURN_IF_ERROR(store->Start());
  return store;
}

}  // namespace onepiece::bench
