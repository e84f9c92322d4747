#include "cluster/node/result_fetches.h"

#include <optional>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/node/job_records_impl.h"
#include "grpcpp/support/client_callback.h"

namespace onepiece::node {
namespace {

// A call that brings nothing for this long, while a part is wanted, has lost its database. Scaled.
constexpr base::Duration kSilenceLimit = std::chrono::seconds(10);
constexpr int kRounds = 2;
constexpr char kMethod[] = "/onepiece.v1.DatabaseService/FetchResult";

grpc::ByteBuffer Encode(const v1::FetchResultRequest& request) {
  const grpc::Slice bytes(request.SerializeAsString());
  return {&bytes, 1};
}

}  // namespace

/// Threading: Next(), Cancel() and CancelIfSilent() may be called from any thread. All else happens
/// one after the other: in Begin(), and in what follows from it.
class ResultFetches::Run final : public ResultFetch, public std::enable_shared_from_this<Run> {
 public:
  Run(ResultFetches& fetches, Wanted wanted, std::shared_ptr<PartTaker> taker)
      : fetches_(fetches),
        uid_(wanted.uid),
        limited_(wanted.limit_bytes > 0),
        taker_(std::move(taker)) {
    request_.set_name(NameOfUid(uid_));
    request_.set_artifact(std::move(wanted.artifact));
    request_.set_offset_bytes(wanted.offset_bytes);
    request_.set_limit_bytes(wanted.limit_bytes);
  }
  void Begin() override {
    fetches_.Add(shared_from_this());
    BeginRound();
  }
  void Next() override;
  void Cancel() override;
  void CancelIfSilent(base::MonotonicTime now);

 private:
  class Call;
  /// What a call does after it has read.
  enum class After : std::uint8_t { kRead, kWait, kEnd };

  void BeginRound();
  void AskNext();
  bool Heard(rpc::ResultPart part);
  After AfterRead(bool goes_on);
  void Ended(const grpc::Status& status);
  void Finish(const absl::Status& status);
  void BeginReading() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    reading_ = true;
    reading_since_ = fetches_.Now();
  }

  ResultFetches& fetches_;
  const base::Uid uid_;
  const bool limited_;
  std::shared_ptr<PartTaker> taker_;
  v1::FetchResultRequest request_;  ///< For what has not come yet.
  std::optional<v1::ResultArtifact> told_;
  bool changed_ = false;    ///< Another database has other bytes.
  bool malformed_ = false;  ///< This database sent no part.
  Misses misses_;
  int rounds_ = 0;
  std::vector<v1::Endpoint> databases_;  ///< Of this round.
  std::size_t next_ = 0;
  base::Mutex mutex_;
  Call* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  /// The call cannot end by itself, so reads may begin. Whoever takes this away tells gRPC.
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  /// From the beginning of a read until its part has been taken.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  base::MonotonicTime reading_since_ ABSL_GUARDED_BY(mutex_){};
  int wanted_ ABSL_GUARDED_BY(mutex_) = 1;  ///< Parts, without the one that is being read.
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

/// One call to one database. It frees itself. gRPC must not end it while no read is under way,
/// because the next read may begin on another thread: hence the hold.
class ResultFetches::Run::Call final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(std::shared_ptr<Run> run, std::shared_ptr<grpc::GenericStub> stub)
      : run_(std::move(run)), stub_(std::move(stub)), request_(Encode(run_->request_)) {
    stub_->PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    AddHold();
  }
  void Start(bool read) {
    StartWriteLast(&request_, grpc::WriteOptions());
    if (read) Read();
    StartCall();
  }
  void Read() { StartRead(&bytes_); }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      grpc::ByteBuffer bytes;
      bytes.Swap(&bytes_);
      std::optional<rpc::ResultPart> part = rpc::DecodePart(std::move(bytes));
      if (!part.has_value()) run_->malformed_ = true;
      ok = part.has_value() && run_->Heard(*std::move(part));
      if (!ok) Cancel();
    }
    const After after = run_->AfterRead(ok);
    if (after == After::kRead) Read();
    if (after == After::kEnd) RemoveHold();
  }
  void OnDone(const grpc::Status& status) override {
    run_->Ended(status);
    delete this;
  }

  const std::shared_ptr<Run> run_;
  const std::shared_ptr<grpc::GenericStub> stub_;
  const grpc::ByteBuffer request_;
  grpc::ClientContext context_;
  grpc::ByteBuffer bytes_;
};

void ResultFetches::Run::BeginRound() {
  databases_ = fetches_.DatabasesFor(uid_);
  next_ = 0;
  AskNext();
}

void ResultFetches::Run::AskNext() {
  if (next_ == databases_.size()) {
    // The second round is for a database that restarted during the first one.
    if (++rounds_ == kRounds || !told_.has_value()) return Finish(misses_.Verdict());
    return BeginRound();
  }
  auto* const call = new Call(shared_from_this(), fetches_.StubFor(databases_[next_++].address()));
  bool read = false;
  {
    const base::MutexLock lock(mutex_);
    call_ = call;
    held_ = true;
    silent_ = false;
    // The end of a read ends a call that is cancelled already.
    read = wanted_ > 0 || cancelled_;
    if (read) {
      --wanted_;
      BeginReading();
    }
    if (cancelled_) call->Cancel();
  }
  call->Start(read);
}

void ResultFetches::Run::Next() {
  Call* call = nullptr;
  {
    const base::MutexLock lock(mutex_);
    ++wanted_;
    if (!held_ || reading_) return;
    --wanted_;
    BeginReading();
    call = call_;
  }
  call->Read();
}

void ResultFetches::Run::Cancel() {
  Call* idle = nullptr;
  {
    const base::MutexLock lock(mutex_);
    cancelled_ = true;
    if (call_ == nullptr) return;
    call_->Cancel();
    // Otherwise the end of the read ends the call.
    if (held_ && !reading_) idle = call_;
    if (idle != nullptr) held_ = false;
  }
  if (idle != nullptr) idle->RemoveHold();
}

void ResultFetches::Run::CancelIfSilent(base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  if (call_ == nullptr || !reading_ || now - reading_since_ <= base::Scaled(kSilenceLimit)) return;
  silent_ = true;
  call_->Cancel();
}

// Returns false when the call is not wanted any more.
bool ResultFetches::Run::Heard(rpc::ResultPart part) {
  {
    const base::MutexLock lock(mutex_);
    if (cancelled_) return false;
  }
  const auto came = static_cast<std::int64_t>(part.chunk_bytes());
  if (!told_.has_value()) {
    told_ = part.artifact.value_or(v1::ResultArtifact());
  } else if (part.artifact.has_value()) {
    // Another database may go on only with the same bytes.
    changed_ = part.artifact->sha256() != told_->sha256();
    if (changed_) return false;
    part.artifact.reset();
  }
  request_.set_offset_bytes(request_.offset_bytes() + came);
  if (limited_) request_.set_limit_bytes(request_.limit_bytes() - came);
  taker_->OnPart(std::move(part));
  return true;
}

ResultFetches::Run::After ResultFetches::Run::AfterRead(bool goes_on) {
  const base::MutexLock lock(mutex_);
  reading_ = false;
  if (!goes_on || cancelled_) {
    ++wanted_;  // By the next call, if there is one. After a part nobody asks for one.
    held_ = false;
    return After::kEnd;
  }
  if (wanted_ == 0) return After::kWait;
  --wanted_;
  BeginReading();
  return After::kRead;
}

void ResultFetches::Run::Ended(const grpc::Status& status) {
  bool cancelled = false, silent = false;
  {
    const base::MutexLock lock(mutex_);
    call_ = nullptr;
    cancelled = cancelled_;
    silent = silent_;
  }
  if (changed_) {
    return Finish(base::MakeError(absl::StatusCode::kAborted, "RESULT_CHANGED",
                                  "the result changed during the fetch"));
  }
  if (cancelled) return Finish(Cancelled());
  if (malformed_) return Finish(absl::InternalError("the database sent a malformed part"));
  absl::Status result = rpc::FromGrpc(status);
  if (silent) {
    result = base::MakeError(absl::StatusCode::kDeadlineExceeded, "STREAM_STALLED",
                             "the database went silent");
  }
  // A server that shuts down cancels its streams.
  if (absl::IsCancelled(result)) result = absl::UnavailableError(result.message());
  if (result.ok() || !misses_.Take(result)) return Finish(result);
  // Everything is here. A limit of 0 would ask the next database for all the rest.
  if (limited_ && request_.limit_bytes() <= 0) return Finish(absl::OkStatus());
  AskNext();
}

void ResultFetches::Run::Finish(const absl::Status& status) {
  taker_->OnEnd(status);
  taker_.reset();
  fetches_.Remove(shared_from_this());
}

ResultFetches::ResultFetches(JobRecords& records)
    : records_(records), thread_([this](const std::stop_token& stop) { EndSilent(stop); }) {}

ResultFetches::~ResultFetches() {
  for (const auto& run : All()) run->Cancel();
  base::MutexLock lock(mutex_);
  all_ended_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return runs_.empty(); });
}

std::shared_ptr<ResultFetch> ResultFetches::Make(Wanted wanted, std::shared_ptr<PartTaker> taker) {
  return std::make_shared<Run>(*this, std::move(wanted), std::move(taker));
}

std::vector<v1::Endpoint> ResultFetches::DatabasesFor(const base::Uid& uid) {
  return records_.impl_->DatabasesFor(uid);
}

base::MonotonicTime ResultFetches::Now() const { return records_.impl_->clock.Now(); }

std::shared_ptr<grpc::GenericStub> ResultFetches::StubFor(const std::string& address) {
  const base::MutexLock lock(mutex_);
  // Most of them are addresses of databases that are long gone. Those in use come back at once.
  if (stubs_.size() >= kMaxStubs && !stubs_.contains(address)) stubs_.clear();
  std::shared_ptr<grpc::GenericStub>& stub = stubs_[address];
  if (stub == nullptr) stub = std::make_shared<grpc::GenericStub>(rpc::MakeChannel(address));
  return stub;
}

void ResultFetches::Add(const std::shared_ptr<Run>& run) {
  const base::MutexLock lock(mutex_);
  runs_.insert(run);
}

void ResultFetches::Remove(const std::shared_ptr<Run>& run) {
  const base::MutexLock lock(mutex_);
  runs_.erase(run);
  if (runs_.empty()) all_ended_.NotifyAll();
}

std::vector<std::shared_ptr<ResultFetches::Run>> ResultFetches::All() {
  const base::MutexLock lock(mutex_);
  return {runs_.begin(), runs_.end()};
}

void ResultFetches::EndSilent(const std::stop_token& stop) {
  // Silence is noticed at most an eighth of the limit late.
  while (records_.impl_->clock.Pause(stop, base::Scaled(kSilenceLimit) / 8)) {
    for (const auto& run : All()) run->CancelIfSilent(Now());
  }
}

}  // namespace onepiece::node
