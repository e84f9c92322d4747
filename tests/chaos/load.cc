#include "tests/chaos/load.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"

namespace onepiece::chaos {
namespace {

using paxos::sim::Operation;
using paxos::sim::Random;
using Stub = v1::NodeManagerService::Stub;

// The timeout of one attempt. Some clients have gone on to the next leader while others still wait
// for the one before.
constexpr double kShortestAttemptMs = 200, kLongestAttemptMs = 2000;
// Of all attempts.
constexpr auto kOperation = std::chrono::seconds(10);
constexpr auto kRetry = std::chrono::milliseconds(25);
constexpr std::uint32_t kKeys = 8;  // Keys that are written at a time.
// The load then goes on to other keys, because judging a register takes memory with the square of
// its operations.
constexpr std::uint64_t kOperationsOfAKey = 20'000;
constexpr std::size_t kMaxComplaints = 20;
constexpr char kPrefix[] = "chaos-";

paxos::sim::Nanos NanosOf(base::MonotonicTime time) { return time.time_since_epoch().count(); }
std::string AppId(std::uint32_t key) { return absl::StrCat(kPrefix, key); }

v1::ApplyWorkflowRequest WriteRequest(std::uint32_t key, std::uint64_t value) {
  v1::ApplyWorkflowRequest request;
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  v1::Workflow& workflow = *request.mutable_workflow();
  workflow.set_app_id(AppId(key));
  workflow.set_display_name(std::to_string(value));
  v1::StageSpec& stage = *workflow.add_stages();
  stage.set_stage("nothing");
  stage.set_plugin("nothing");
  v1::ParameterSpec& parameter = *workflow.add_parameters();
  parameter.set_name("padding");
  parameter.set_type(v1::ParameterSpec::STRING);
  constexpr std::size_t kBytes = 256;
  const std::size_t bytes = request.ByteSizeLong();
  parameter.set_description(std::string(kBytes > bytes ? kBytes - bytes : 0, '.'));
  return request;
}

/// The status is about the replica and not about the request, so another replica may answer.
bool AskAnother(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded ||
         status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kCancelled;
}

}  // namespace

/// One client with its own connections. Thread-confined.
class Load::Client {
 public:
  Client(Load& load, std::uint32_t number)
      : load_(load), number_(number), random_(load.options_.seed * 1000 + number) {
    for (const std::string& address : load.options_.addresses) {
      channels_.push_back(rpc::MakeChannel(address));
      stubs_.push_back(v1::NodeManagerService::NewStub(channels_.back()));
    }
    target_ = number % stubs_.size();
  }

  void Run(const std::stop_token& stop) {
    stop_ = stop;
    const base::Duration turn(
        static_cast<std::int64_t>(1e9 * load_.options_.clients / load_.options_.operations_per_s));
    base::MonotonicTime next = base::SystemClock().Now();
    while (!stop.stop_requested()) {
      // A late client works without pause, but does not make up for a whole outage.
      next = std::max(next + turn, base::SystemClock().Now() - turn);
      base::MutexLock lock(mutex_);
      base::SystemClock().WaitUntil(never_, lock, stop, next, [] { return false; });
      const std::uint64_t what = random_.Below(100);
      if (what < 80) {
        Write(load_.DrawKey(random_.Next()));
      } else if (what < 98) {
        Read(load_.DrawKey(random_.Next()));
      } else {
        LookAtCluster();
      }
    }
  }

  std::optional<std::uint64_t> Read(std::uint32_t key) {
    v1::GetWorkflowRequest request;
    request.set_name("workflows/" + AppId(key));
    v1::Workflow workflow;
    const Asked asked = Ask(&Stub::GetWorkflow, request, workflow);
    if (asked.status.code() != absl::StatusCode::kNotFound && !asked.status.ok()) {
      // A read without an answer proves nothing.
      if (!AskAnother(asked.status)) load_.Complain("read: " + asked.status.ToString());
      return std::nullopt;
    }
    history_.push_back({.kind = Operation::Kind::kRead,
                        .client = number_,
                        .key = key,
                        .before = ValueOf(workflow),
                        .called = NanosOf(asked.called),
                        .returned = NanosOf(asked.returned)});
    return history_.back().before;
  }

  [[nodiscard]] const std::vector<Operation>& history() const { return history_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Asked {
    absl::Status status;
    base::MonotonicTime called, began, returned;  // All attempts, and the last one's beginning.
  };

  /// Asks one replica after the other until one answers.
  template <typename Request, typename Response>
  Asked Ask(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
            const Request& request, Response& response) {
    Asked asked{.called = base::SystemClock().Now()};
    const base::MonotonicTime give_up = asked.called + base::Scaled(kOperation);
    do {
      // Otherwise the channel would connect again only with the next call.
      for (const auto& channel : channels_) channel->GetState(true);
      asked.began = base::SystemClock().Now();
      const std::chrono::milliseconds limit(
          static_cast<int>(random_.LogBetween(kShortestAttemptMs, kLongestAttemptMs)));
      auto answer = rpc::Call(*stubs_[target_], method, request, limit);
      asked.returned = base::SystemClock().Now();
      asked.status = answer.status();
      if (answer.ok()) response = *std::move(answer);
      if (!AskAnother(asked.status)) return asked;
      Turn(base::GetReason(asked.status));
    } while (asked.returned < give_up && !stop_.stop_requested());
    return asked;
  }

  void Turn(const base::ErrorReason& reason) {
    const auto hint = reason.metadata.find("leader");
    const auto& addresses = load_.options_.addresses;
    if (hint != reason.metadata.end()) {
      const auto leader = std::find(addresses.begin(), addresses.end(), hint->second);
      if (leader == addresses.end()) {
        load_.Complain("a leader at an unknown address: " + hint->second);
      } else if (leader != addresses.begin() + static_cast<std::ptrdiff_t>(target_)) {
        target_ = static_cast<std::size_t>(leader - addresses.begin());
        return;
      }
    }
    target_ = (target_ + 1) % stubs_.size();
    testing::Pause(kRetry);
  }

  void Write(std::uint32_t key) {
    const std::uint64_t value =
        ++written_ * static_cast<std::uint64_t>(load_.options_.clients) + number_;
    v1::Workflow workflow;
    const Asked asked = Ask(&Stub::ApplyWorkflow, WriteRequest(key, value), workflow);
    Operation operation = {.kind = Operation::Kind::kWrite,
                           .client = number_,
                           .key = key,
                           .written = value,
                           .called = NanosOf(asked.called)};
    if (asked.status.ok()) {
      operation.returned = NanosOf(asked.returned);
      ++counters_.acknowledged;
      load_.Acknowledged(asked.began, asked.returned);
    } else {
      // The outcome is unknown whatever the last replica said, because an earlier attempt may have
      // been carried out.
      if (!AskAnother(asked.status)) load_.Complain("write: " + asked.status.ToString());
      ++counters_.unknown;
    }
    history_.push_back(operation);
  }

  void LookAtCluster() {
    const std::uint64_t revision = load_.revision_, epoch = load_.epoch_;
    v1::Cluster cluster;
    if (!Ask(&Stub::GetCluster, {}, cluster).status.ok()) return;
    if (cluster.revision() < revision || cluster.epoch() < epoch) {
      load_.Complain(absl::StrCat("client ", number_, " sees revision ", cluster.revision(),
                                  " and epoch ", cluster.epoch(), " after somebody saw ", revision,
                                  " and ", epoch));
    }
    Raise(load_.revision_, cluster.revision());
    Raise(load_.epoch_, cluster.epoch());
  }

  static void Raise(std::atomic<std::uint64_t>& value, std::uint64_t to) {
    std::uint64_t known = value;
    while (known < to && !value.compare_exchange_weak(known, to)) {
    }
  }

  Load& load_;
  const std::uint32_t number_;
  Random random_;
  std::stop_token stop_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<Stub>> stubs_;
  std::size_t target_ = 0;
  std::uint64_t written_ = 0;
  std::vector<Operation> history_;
  Counters counters_;
  base::Mutex mutex_;
  base::CondVar never_;
};

Load::Load(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.clients; ++i) {
    clients_.push_back(std::make_unique<Client>(*this, static_cast<std::uint32_t>(i)));
  }
}

Load::~Load() { Stop(); }

void Load::Start() {
  for (const auto& client : clients_) {
    threads_.emplace_back([&client](const std::stop_token& stop) { client->Run(stop); });
  }
}

void Load::Stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void Load::ExpectWrite() {
  const base::MutexLock lock(mutex_);
  since_ = base::SystemClock().Now();
  first_.reset();
}

std::optional<base::MonotonicTime> Load::WaitForWrite(base::Duration limit) {
  base::MutexLock lock(mutex_);
  base::SystemClock().WaitUntil(acknowledged_, lock, {}, base::SystemClock().Now() + limit,
                                [this] { return first_.has_value(); });
  return first_;
}

void Load::Acknowledged(base::MonotonicTime began, base::MonotonicTime at) {
  const base::MutexLock lock(mutex_);
  if (began < since_ || first_) return;
  first_ = at;
  acknowledged_.NotifyAll();
}

void Load::Complain(std::string what) {
  const base::MutexLock lock(mutex_);
  if (complaints_.size() < kMaxComplaints) complaints_.push_back(std::move(what));
}

std::vector<std::string> Load::complaints() const {
  const base::MutexLock lock(mutex_);
  return complaints_;
}

std::uint32_t Load::DrawKey(std::uint64_t random) {
  const std::uint64_t generation = drawn_++ / (kKeys * kOperationsOfAKey);
  return static_cast<std::uint32_t>(generation * kKeys + random % kKeys);
}

std::map<std::string, std::uint64_t> Load::ReadAll() {
  std::map<std::string, std::uint64_t> values;
  const std::uint64_t generations = drawn_ / (kKeys * kOperationsOfAKey) + 1;
  Client reader(*this, static_cast<std::uint32_t>(clients_.size()));
  for (std::uint32_t key = 0; key < generations * kKeys; ++key) {
    const std::optional<std::uint64_t> value = reader.Read(key);
    if (!value) {
      Complain(absl::StrCat("register ", key, " cannot be read in the end"));
    } else if (*value != 0) {
      values[AppId(key)] = *value;
    }
  }
  last_reads_ = reader.history();
  return values;
}

std::vector<Operation> Load::History() const {
  std::vector<Operation> history = last_reads_;
  for (const auto& client : clients_) {
    history.insert(history.end(), client->history().begin(), client->history().end());
  }
  return history;
}

Load::Counters Load::counters() const {
  Counters sum;
  for (const auto& client : clients_) {
    sum.acknowledged += client->counters().acknowledged;
    sum.unknown += client->counters().unknown;
  }
  return sum;
}

std::uint64_t Load::ValueOf(const v1::Workflow& workflow) {
  std::uint64_t value = 0;
  if (!workflow.app_id().starts_with(kPrefix)) return 0;
  const std::string& text = workflow.display_name();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace onepiece::chaos
