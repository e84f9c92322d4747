// `onepiece-bench-result`: measures where the time of a 4 MiB result goes, from the last stage's
// output in memory to the client's file. Two databases, a proxy, their gRPC servers and the fabric
// are the real ones, in one process. One thread plays the last stage and the client, and does step
// by step what ResultDelivery and the client library do. So the parts follow each other and add up.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/crc32c.h"
#include "cluster/base/sha256.h"
#include "cluster/rpc/channel.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/report_main.h"
#include "tests/proxy/proxy_cluster.h"

namespace onepiece::bench {
namespace {

using namespace std::chrono_literals;
using database::Require;

constexpr std::size_t kBytes = std::size_t{4} << 20;
constexpr int kRuns = 200, kWarmUps = 10;

enum Part : std::size_t {
  kSha256,
  kReserve,
  kWrite,
  kCommit,
  kReplica,
  kWatch,
  kRead,
  kStream,
  kCheck,
  kFile,
  kAcknowledge,
  kParts
};
constexpr std::array<const char*, kParts> kNames = {
    "sha256",  // Of the artifact, at the instance.
    "reserve",     "write",
    "commit",       // The database reads the bytes once, for their CRC.
    "replica",      // Until the second database has its copy.
    "watch",        // Until the client is told.
    "read",         // The fetch, the proxy's one-sided read, the first MiB at the client.
    "stream",       // The rest of it.
    "check",        // SHA-256 at the client.
    "file",         // Written, not synchronised.
    "acknowledge",  // Both copies may go.
};

struct Hop {
  std::array<double, kParts> parts{};
  double total = 0;
};

double Microseconds(base::Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// Returns the microseconds since the last call.
class Watch {
 public:
  double Lap() {
    const base::MonotonicTime now = base::SystemClock().Now();
    return Microseconds(now - std::exchange(last_, now));
  }

 private:
  base::MonotonicTime last_ = base::SystemClock().Now();
};

template <typename T>
T Value(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

/// The path of an instance into one database.
class Writer {
 public:
  Writer(fabric::Fabric& fabric, const std::string& address)
      : fabric_(fabric), stub_(rpc::MakeChannel(address)) {}

  v1::ReserveResultResponse Reserve(const v1::JobRecord& record, const std::string& sha256) {
    v1::ReserveResultRequest request;
    request.set_uid(record.job().uid());
    request.set_app_id(record.job().app_id());
    *request.mutable_create_time() = record.job().create_time();
    *request.mutable_time_left() = record.time_left();
    request.set_sender("instance");
    v1::ResultArtifact& artifact = *request.add_artifacts();
    artifact.set_artifact("video");
    artifact.set_media_type("video/mp4");
    artifact.set_size_bytes(kBytes);
    artifact.set_sha256(sha256);
    return Value(rpc::Call(stub_, &Stub::ReserveResult, request, 10s));
  }
  std::uint32_t Write(const v1::ReserveResultResponse& place, std::span<const std::byte> bytes) {
    fabric::Channel& channel = ChannelTo(place.segment());
    const std::uint32_t crc32c = base::Crc32c(bytes);
    const std::array pieces = {bytes};
    const std::array chain = {fabric::Op::Write("write the value", place.offset(), pieces)};
    Require(channel.Execute(chain, base::SystemClock().Now() + 10s));
    return crc32c;
  }
  void Commit(const v1::ReserveResultResponse& place, std::uint32_t crc32c) {
    v1::CommitResultRequest request;
    request.set_reservation(place.reservation());
    request.set_crc32c(crc32c);
    if (!Value(rpc::Call(stub_, &Stub::CommitResult, request, 10s)).stored()) qFatal("not stored");
  }

 private:
  using Stub = v1::DatabaseService::Stub;

  fabric::Channel& ChannelTo(std::uint32_t segment) {
    std::unique_ptr<fabric::Channel>& channel = channels_[segment];
    if (channel != nullptr && !channel->broken()) return *channel;
    const auto dialer = Value(fabric_.Dial());
    v1::OpenSegmentRequest request;
    request.set_node_id("instance");
    request.set_segment(segment);
    request.set_offer(dialer->offer().Serialize());
    const auto response = Value(rpc::Call(stub_, &Stub::OpenSegment, request, 10s));
    channel = Value(dialer->Connect(Value(fabric::RemoteRegion::Parse(response.region()))));
    return *channel;
  }

  fabric::Fabric& fabric_;
  Stub stub_;
  std::map<std::uint32_t, std::unique_ptr<fabric::Channel>> channels_;
};

/// A client that watches a job from its construction on.
class Follower {
 public:
  Follower(v1::GenerationService::Stub& proxy, const std::string& name) {
    v1::WatchJobRequest request;
    request.set_name(name);
    rpc::SetTimeout(context_, 20s);
    stream_ = proxy.WatchJob(&context_, request);
    v1::Job job;
    if (!stream_->Read(&job)) qFatal("no watch");
    ended_ = std::async(std::launch::async, [this] {
      v1::Job now;
      while (stream_->Read(&now) && now.state() != v1::Job::SUCCEEDED) {
      }
      if (now.state() != v1::Job::SUCCEEDED) qFatal("the job did not succeed");
    });
  }
  ~Follower() { (void)stream_->Finish(); }
  void AwaitEnd() { ended_.get(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Job>> stream_;
  std::future<void> ended_;
};

struct Set {
  Set() {
    for (const char* id : {"db-1", "db-2"}) {
      const std::string& address = cluster.AddDatabase(id).server->address();
      writers[id] = std::make_unique<Writer>(cluster.fabric(), address);
    }
    proxy = std::make_unique<proxy::Proxy>(cluster, "proxy-1");
  }

  database::DatabaseCluster cluster;
  std::map<std::string, std::unique_ptr<Writer>> writers;
  std::unique_ptr<proxy::Proxy> proxy;
};

/// Returns when that database had its copy.
std::future<base::MonotonicTime> Copied(database::JobStore& store, const std::string& uid) {
  struct Copy {
    std::promise<base::MonotonicTime> when;
    std::atomic<bool> told = false;
  };
  const auto copy = std::make_shared<Copy>();
  auto subscribed =
      store.Subscribe(uid, [copy](const absl::StatusOr<database::JobRevision>& now, bool) {
        if (!now.ok() || now->job->state() != v1::Job::SUCCEEDED || copy->told.exchange(true))
          return;
        copy->when.set_value(base::SystemClock().Now());
      });
  Require(subscribed.status());
  return std::async(std::launch::async,
                    [when = copy->when.get_future(),
                     subscription = std::move(subscribed->subscription)]() mutable {
                      if (when.wait_for(20s) != std::future_status::ready) qFatal("no second copy");
                      return when.get();
                    });
}

/// The steps of the fetch: until the first MiB has arrived, and the rest.
std::string Fetch(Set& set, const std::string& name, Watch& watch, Hop& hop) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, 20s);
  v1::FetchResultRequest request;
  request.set_name(name);
  const auto stream = set.proxy->stub->FetchResult(&context, request);
  std::string bytes;
  bytes.reserve(kBytes);
  v1::FetchResultResponse part;
  while (stream->Read(&part)) {
    bytes += part.chunk();
    if (hop.parts[kRead] == 0) hop.parts[kRead] = watch.Lap();
  }
  Require(rpc::FromGrpc(stream->Finish()));
  hop.parts[kStream] = watch.Lap();
  return bytes;
}

Hop MeasureOne(Set& set, const std::string& content, const std::string& path) {
  const v1::JobRecord record = database::NewRecord();
  const std::string& uid = record.job().uid();
  const std::string& name = record.job().name();
  Require(set.cluster.records().Create(record).status());
  const std::vector<std::string> order = set.cluster.Order(uid);
  Writer& writer = *set.writers.at(order[0]);
  database::JobStore& second = set.cluster.at(order[1]).node->store();
  if (!database::Eventually([&] { return second.Get(uid).ok(); })) qFatal("no second record");
  Follower follower(*set.proxy->stub, name);
  auto copied = Copied(second, uid);

  Hop hop;
  const auto bytes = std::as_bytes(std::span(content));
  const base::MonotonicTime start = base::SystemClock().Now();
  Watch watch;
  const std::string sha256 = base::Sha256Hex(bytes);
  hop.parts[kSha256] = watch.Lap();
  const v1::ReserveResultResponse place = writer.Reserve(record, sha256);
  hop.parts[kReserve] = watch.Lap();
  const std::uint32_t crc32c = writer.Write(place, bytes);
  hop.parts[kWrite] = watch.Lap();
  writer.Commit(place, crc32c);
  hop.parts[kCommit] = watch.Lap();
  const base::MonotonicTime committed = base::SystemClock().Now();
  const base::MonotonicTime has_copy = std::max(copied.get(), committed);
  follower.AwaitEnd();
  const base::MonotonicTime told = base::SystemClock().Now();
  hop.parts[kReplica] = Microseconds(has_copy - committed);
  hop.parts[kWatch] = Microseconds(told - has_copy);
  watch.Lap();
  const std::string got = Fetch(set, name, watch, hop);
  if (base::Sha256Hex(got) != sha256) qFatal("other bytes");
  hop.parts[kCheck] = watch.Lap();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << got;
  hop.parts[kFile] = watch.Lap();
  v1::AcknowledgeResultRequest acknowledge;
  acknowledge.set_name(name);
  Require(set.proxy->Call(&v1::GenerationService::Stub::AcknowledgeResult, acknowledge).status());
  hop.parts[kAcknowledge] = watch.Lap();
  hop.total = Microseconds(base::SystemClock().Now() - start);
  return hop;
}

double Quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(rank, values.size() - 1)];
}

BenchResult Summarise(const std::vector<Hop>& hops, const char* percentile, double share) {
  const auto of = [&](const auto& value) {
    std::vector<double> values;
    for (const Hop& hop : hops) values.push_back(value(hop));
    return Quantile(std::move(values), share);
  };
  BenchResult result{.name = std::string("result.4MiB.") + percentile,
                     .workload =
                         "one result from the last stage to its client's file, two "
                         "copies, one at a time",
                     .metric = std::string("latency_") + percentile,
                     .unit = "us",
                     .ours = of([](const Hop& hop) { return hop.total; }),
                     .runs = static_cast<int>(hops.size()),
                     .split = {}};
  for (std::size_t part = 0; part < kParts; ++part) {
    result.split.emplace_back(kNames[part], of([part](const Hop& hop) { return hop.parts[part]; }));
  }
  return result;
}

BenchReport Measure() {
  std::string content(kBytes, '\0');
  for (std::size_t i = 0; i < kBytes; ++i) content[i] = static_cast<char>((i * 2654435761U) >> 24);
  const auto path = std::filesystem::temp_directory_path() /
                    ("onepiece-bench-result-" + std::to_string(getpid()));
  Set set;
  std::vector<Hop> hops;
  for (int run = -kWarmUps; run < kRuns; ++run) {
    const Hop hop = MeasureOne(set, content, path);
    if (run >= 0) hops.push_back(hop);
  }
  std::filesystem::remove(path);
  BenchReport report;
  report.results.push_back(Summarise(hops, "p50", 0.50));
  report.results.push_back(Summarise(hops, "p99", 0.99));
  return report;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);  // Its lines would mix with the report.
  return onepiece::bench::ReportMain(argc, argv, "onepiece-bench-result", onepiece::bench::Measure);
}
