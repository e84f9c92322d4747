#include "tests/chaos/ledger_load.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>

#include "cluster/base/ids.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/repeat.h"
#include "tests/chaos/ledger_bytes.h"
#include "tests/eventually.h"
#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::ledger {
namespace {

using paxos::sim::Random;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Stub = v1::GenerationService::Stub;

constexpr auto kRefresh = milliseconds(300), kRetry = milliseconds(200);
constexpr auto kCall = seconds(5), kTransfer = seconds(30), kWatch = seconds(2);
constexpr auto kSubmit = seconds(15);  // All attempts.
constexpr auto kDeadline = seconds(60), kTtl = seconds(3600);
constexpr std::int64_t kLargeBytes = 8 << 20;
// A client never asks for more than this allows.
constexpr std::int64_t kHeldBytes = std::int64_t{256} << 20;
constexpr double kSoonestCancelMs = 20, kLatestCancelMs = 1200;
constexpr double kShortestStage = 0.02, kLongestStage = 0.5;  // Seconds.
constexpr std::size_t kLooks = 4;  // Jobs under way that a turn looks at.

/// What becomes of a job, decided when it is made.
enum class Fate : std::uint8_t { kKeep, kFetch, kAcknowledge, kDelete, kCancel };

Fate DrawFate(Random& random, int cancel_percent) {
  if (random.Below(100) < static_cast<std::uint64_t>(cancel_percent)) return Fate::kCancel;
  const std::uint64_t drawn = random.Below(100);
  if (drawn < 64) return Fate::kKeep;
  if (drawn < 80) return Fate::kFetch;
  return drawn < 94 ? Fate::kAcknowledge : Fate::kDelete;
}

std::string ReasonOf(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  return reason.empty() ? status.ToString() : reason;
}

}  // namespace

std::string ExpectedSha256(std::uint64_t seed, std::int64_t size) {
  base::Sha256 sha256;
  Bytes bytes(seed);
  std::string piece(std::size_t{1} << 20, '\0');
  for (std::int64_t left = size; left > 0; left -= static_cast<std::int64_t>(piece.size())) {
    piece.resize(static_cast<std::size_t>(std::min(left, static_cast<std::int64_t>(piece.size()))));
    bytes.Next(piece);
    sha256.Update(piece);
  }
  return sha256.FinishHex();
}

std::int64_t DrawSize(Random& random, std::int64_t largest) {
  const std::uint64_t drawn = random.Below(100);
  const double least = drawn < 90 ? kSmallBytes : kMediumBytes;
  const double most = drawn < 90 ? kMediumBytes : drawn < 96 ? kLargeBytes : kLargestBytes;
  return std::min<std::int64_t>(std::lround(random.LogBetween(least, most)), largest);
}

std::vector<ProxyStub> Proxies::List() {
  const base::MutexLock lock(mutex_);
  if (Now() < read_ + kRefresh) return list_;
  read_ = Now();
  // A stub of the last list is used again. Those of dead proxies go.
  std::vector<ProxyStub> before;
  before.swap(list_);
  for (const local::ProcessRecord& record : cluster_.Ready(Role::kProxy)) {
    const auto known = std::ranges::find(before, record.address, &ProxyStub::address);
    list_.push_back(known != before.end()
                        ? *known
                        : ProxyStub{record.address, v1::GenerationService::NewStub(
                                                        rpc::MakeChannel(record.address))});
  }
  return list_;
}

absl::StatusOr<Word> AskProxy(const ProxyStub& proxy, const std::string& uid) {
  v1::GetJobRequest request;
  request.set_name(client::JobName(uid));
  const auto asked = Now();
  const auto job = rpc::Call(*proxy.stub, &Stub::GetJob, request, kCall);
  if (!job.ok()) return job.status();
  return WordOf(*job, proxy.address, asked, Now());
}

absl::StatusOr<std::string> FetchSha256(const ProxyStub& proxy, const std::string& uid) {
  v1::FetchResultRequest request;
  request.set_name(client::JobName(uid));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kTransfer);
  const auto stream = proxy.stub->FetchResult(&context, request);
  base::Sha256 sha256;
  v1::FetchResultResponse part;
  std::int64_t size = 0, announced = 0;
  while (stream->Read(&part)) {
    if (part.has_artifact()) announced = part.artifact().size_bytes();
    sha256.Update(part.chunk());
    size += static_cast<std::int64_t>(part.chunk().size());
  }
  if (const grpc::Status status = stream->Finish(); !status.ok()) return rpc::FromGrpc(status);
  // A client of ours would resume; the stream said OK too early.
  if (size != announced) return absl::DataLossError("SHORT_STREAM");
  return sha256.FinishHex();
}

v1::Job::State WatchProxy(const ProxyStub& proxy, const std::string& uid, base::Duration limit,
                          Ledger& ledger) {
  v1::WatchJobRequest request;
  request.set_name(client::JobName(uid));
  grpc::ClientContext context;
  rpc::SetTimeout(context, limit);
  const auto asked = Now();
  const auto stream = proxy.stub->WatchJob(&context, request);
  v1::Job job;
  while (stream->Read(&job)) ledger.Told(uid, WordOf(job, proxy.address, asked, Now()));
  stream->Finish();
  return job.state();
}

/// One client. Thread-confined to its own thread, except refused_ after the end.
class LedgerLoad::Client {
 public:
  Client(const LoadOptions& options, int number, Ledger& ledger, Proxies& proxies)
      : options_(options),
        ledger_(ledger),
        proxies_(proxies),
        random_(options.seed * 1000 + static_cast<std::uint64_t>(number) + 1) {}

  void Run(const std::stop_token& stop) {
    const auto turn = std::chrono::duration_cast<base::Duration>(
        std::chrono::duration<double>(options_.clients / options_.jobs_per_s));
    base::MonotonicTime next = Now();
    while (!stop.stop_requested()) {
      next = std::max(next + turn, Now());
      Submit(stop);
      for (std::size_t i = 0; i < kLooks; ++i) Look();
      LookAtOld();
      if (next > Now()) base::SystemClock().Pause(stop, next - Now());
    }
  }

  [[nodiscard]] const std::map<std::string, std::int64_t>& refused() const { return refused_; }

 private:
  struct Mine {
    std::string uid;
    std::int64_t size = 0;
    Fate fate = Fate::kKeep;
  };

  std::optional<ProxyStub> AnyProxy() {
    const std::vector<ProxyStub> proxies = proxies_.List();
    if (proxies.empty()) return std::nullopt;
    return random_.Pick(proxies);
  }

  void Submit(const std::stop_token& stop) {
    const std::int64_t room = std::max(kSmallBytes, kHeldBytes - held_);
    Mine mine{.size = std::min(DrawSize(random_, options_.largest_bytes), room)};
    mine.fate = DrawFate(random_, options_.cancel_percent);
    if (options_.fetch_all) mine.fate = Fate::kFetch;
    // A double holds every integer up to 2^53.
    const std::uint64_t seed = random_.Below(std::uint64_t{1} << 53);
    v1::SubmitJobRequest request;
    request.set_app_id(kApp);
    request.set_request_id(base::Uid::GenerateRandom().ToString());
    request.mutable_deadline()->set_seconds(std::chrono::seconds(kDeadline).count());
    auto& fields = *request.mutable_parameters()->mutable_fields();
    fields[kSeed].set_number_value(static_cast<double>(seed));
    fields[kSize].set_number_value(static_cast<double>(mine.size));
    fields[kSeconds].set_number_value(random_.LogBetween(kShortestStage, kLongestStage));
    Order order{.sha256 = ExpectedSha256(seed, mine.size),
                .sent = Now(),
                .deadline = kDeadline,
                .result_ttl = kTtl};
    const auto give_up = order.sent + base::Scaled(kSubmit);
    std::string reason = "silent";
    for (bool repeated = false; Now() < give_up && !stop.stop_requested(); repeated = true) {
      const auto proxy = AnyProxy();
      if (proxy) {
        grpc::ClientContext context;
        rpc::SetTimeout(context, kCall);
        if (repeated) context.AddMetadata(rpc::kRepeated, "1");
        v1::Job job;
        const auto asked = Now();
        const absl::Status status = rpc::FromGrpc(proxy->stub->SubmitJob(&context, request, &job));
        if (status.ok()) {
          ledger_.Accepted(job.uid(), order);
          ledger_.Told(job.uid(), WordOf(job, proxy->address, asked, Now()));
          mine.uid = job.uid();
          options_.accepted(mine.uid, order.sent);
          held_ += mine.size;
          under_way_.push_back(mine);
          if (mine.fate == Fate::kCancel) Cancel(mine.uid, stop);
          return;
        }
        reason = ReasonOf(status);
        const bool lost_answer = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
        if (!lost_answer && !absl::IsResourceExhausted(status)) break;
      }
      base::SystemClock().Pause(stop, kRetry);
    }
    ++refused_[reason];
  }

  /// At any moment of the job's life, so that some requests meet its end.
  void Cancel(const std::string& uid, const std::stop_token& stop) {
    base::SystemClock().Pause(
        stop, milliseconds(std::lround(random_.LogBetween(kSoonestCancelMs, kLatestCancelMs))));
    if (const auto proxy = AnyProxy()) Wishes(*proxy, uid, Wish::kCancel);
  }

  /// Looks at the job that nobody has looked at for the longest time.
  void Look() {
    const auto proxy = AnyProxy();
    if (under_way_.empty() || !proxy) return;
    const Mine mine = under_way_.front();
    under_way_.pop_front();
    if (random_.Chance(0.1)) {
      WatchProxy(*proxy, mine.uid, kWatch, ledger_);
    } else {
      Get(*proxy, mine.uid);
    }
    if (!ledger_.HasEnd(mine.uid)) {
      under_way_.push_back(mine);
      return;
    }
    ended_.push_back(mine.uid);
    MeetFate(*proxy, mine);
  }

  void MeetFate(const ProxyStub& proxy, const Mine& mine) {
    const bool goes = mine.fate == Fate::kAcknowledge || mine.fate == Fate::kDelete;
    if (goes || !ledger_.MustBeThere(mine.uid)) held_ -= mine.size;
    if (!ledger_.MustBeThere(mine.uid)) return;
    if (mine.fate == Fate::kDelete) Wishes(proxy, mine.uid, Wish::kDelete);
    if (!goes && mine.size > kMediumBytes) large_.push_back(mine);
    if (mine.fate != Fate::kFetch && mine.fate != Fate::kAcknowledge) return;
    if (!Fetch(proxy, mine.uid)) return;
    // Nobody acknowledges what has not arrived. It would hide a loss, too.
    if (mine.fate == Fate::kAcknowledge) Wishes(proxy, mine.uid, Wish::kAcknowledge);
    if (mine.fate == Fate::kFetch) fetched_.push_back(mine.uid);
  }

  /// Hears whether an end that was told is still the same, and a fetched result too.
  void LookAtOld() {
    const auto proxy = AnyProxy();
    if (ended_.empty() || !proxy) return;
    Get(*proxy, random_.Pick(ended_));
    MakeRoom(*proxy);
    if (!fetched_.empty() && random_.Chance(0.1)) Fetch(*proxy, random_.Pick(fetched_));
  }

  /// Takes the oldest large result that was kept.
  void MakeRoom(const ProxyStub& proxy) {
    if (held_ < kMakeRoomBytes || large_.empty()) return;
    const Mine mine = large_.front();
    large_.pop_front();
    if (!Fetch(proxy, mine.uid)) {
      large_.push_back(mine);  // The room is still taken.
      return;
    }
    held_ -= mine.size;
    Wishes(proxy, mine.uid, Wish::kAcknowledge);
  }

  void Get(const ProxyStub& proxy, const std::string& uid) {
    const auto word = AskProxy(proxy, uid);
    if (word.ok()) ledger_.Told(uid, *word);
  }

  // A fetch that fails proves nothing: the audit tries again, and decides.
  bool Fetch(const ProxyStub& proxy, const std::string& uid) {
    const auto sha256 = FetchSha256(proxy, uid);
    if (sha256.ok()) ledger_.Fetched(uid, *sha256);
    return sha256.ok();
  }

  void Wishes(const ProxyStub& proxy, const std::string& uid, Wish wish) {
    const std::string name = client::JobName(uid);
    ledger_.Asked(uid, wish);
    const auto asked = Now();
    absl::StatusOr<v1::Job> job;
    if (wish == Wish::kCancel) {
      v1::CancelJobRequest request;
      request.set_name(name);
      job = rpc::Call(*proxy.stub, &Stub::CancelJob, request, kCall);
    } else if (wish == Wish::kAcknowledge) {
      v1::AcknowledgeResultRequest request;
      request.set_name(name);
      job = rpc::Call(*proxy.stub, &Stub::AcknowledgeResult, request, kCall);
    } else {
      v1::DeleteJobRequest request;
      request.set_name(name);
      const auto deleted = rpc::Call(*proxy.stub, &Stub::DeleteJob, request, kCall);
      if (deleted.ok()) ledger_.Answered(uid, wish);
      return;
    }
    if (!job.ok()) return;
    ledger_.Told(uid, WordOf(*job, proxy.address, asked, Now()));
    ledger_.Answered(uid, wish);
  }

  const LoadOptions options_;
  Ledger& ledger_;
  Proxies& proxies_;
  Random random_;
  std::int64_t held_ = 0;
  std::deque<Mine> under_way_, large_;
  std::vector<std::string> ended_, fetched_;
  std::map<std::string, std::int64_t> refused_;
};

LedgerLoad::LedgerLoad(const LoadOptions& options, Ledger& ledger, Proxies& proxies) {
  for (int i = 0; i < options.clients; ++i)
    clients_.push_back(std::make_unique<Client>(options, i, ledger, proxies));
}

LedgerLoad::~LedgerLoad() { Stop(); }

void LedgerLoad::Start() {
  for (const auto& client : clients_)
    threads_.emplace_back([&client](const std::stop_token& stop) { client->Run(stop); });
}

void LedgerLoad::Stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

std::map<std::string, std::int64_t> LedgerLoad::Refused() const {
  std::map<std::string, std::int64_t> refused;
  for (const auto& client : clients_) {
    for (const auto& [reason, count] : client->refused()) refused[reason] += count;
  }
  return refused;
}

std::vector<ProxyStub> ProxySource::InOrder() {
  std::vector<ProxyStub> list = proxies_.List();
  std::ranges::stable_partition(
      list, [this](const ProxyStub& proxy) { return !silent_.contains(proxy.address); });
  return list;
}

void ProxySource::Heard(const ProxyStub& proxy, const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    silent_.insert(proxy.address);
  } else {
    silent_.erase(proxy.address);
  }
}

absl::StatusOr<Word> ProxySource::Ask(const std::string& uid) {
  absl::Status unknown = absl::UnavailableError("no proxy runs"), silent;
  for (const ProxyStub& proxy : InOrder()) {
    // A cluster that answers nothing would otherwise cost a timeout for each job.
    if (Now() >= deadline_) return absl::DeadlineExceededError("the audit's time is over");
    absl::StatusOr<Word> word = AskProxy(proxy, uid);
    Heard(proxy, word.status());
    if (word.ok()) return word;
    (absl::IsNotFound(word.status()) ? unknown : silent) = word.status();
  }
  // NOT_FOUND counts only when every proxy says so.
  return silent.ok() ? unknown : silent;
}

absl::StatusOr<std::string> ProxySource::Fetch(const std::string& uid) {
  absl::StatusOr<std::string> sha256 = absl::UnavailableError("no proxy runs");
  for (const ProxyStub& proxy : InOrder()) {
    if (Now() >= deadline_) return absl::DeadlineExceededError("the audit's time is over");
    sha256 = FetchSha256(proxy, uid);
    Heard(proxy, sha256.status());
    if (sha256.ok()) break;
  }
  return sha256;
}

bool ProxySource::Wait() {
  testing::Pause(seconds(1));
  return Now() < deadline_;
}

}  // namespace onepiece::ledger
