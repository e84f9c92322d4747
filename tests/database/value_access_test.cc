// Reservations, admissions and the index, without the processes around them.
#include "cluster/database/value_access.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "cluster/base/crc32c.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/values/slow_fabric.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

v1::ReserveResultRequest Request(const std::vector<std::string>& values) {
  v1::ReserveResultRequest request;
  request.set_uid(base::Uid::GenerateRandom().ToString());
  request.set_app_id("app");
  request.mutable_create_time()->set_seconds(1'700'000'000);
  request.mutable_time_left()->set_seconds(100);
  request.set_sender("writer");
  for (const std::string& value : values) {
    v1::ResultArtifact& artifact = *request.add_artifacts();
    artifact.set_artifact("v" + std::to_string(request.artifacts_size()));
    artifact.set_media_type("video/mp4");
    artifact.set_size_bytes(static_cast<std::int64_t>(value.size()));
    artifact.set_sha256(base::Sha256Hex(BytesOf(value)));
  }
  return request;
}

// Lays artifacts out as a reservation does: each begins at a multiple of 64.
std::string Laid(const std::vector<std::string>& values) {
  std::string bytes;
  for (const std::string& value : values) {
    bytes.resize((bytes.size() + 63) / 64 * 64, '\0');
    bytes += value;
  }
  return bytes;
}

v1::CommitResultRequest CommitOf(std::uint64_t reservation, const std::string& bytes) {
  v1::CommitResultRequest request;
  request.set_reservation(reservation);
  request.set_crc32c(base::Crc32c(BytesOf(bytes)));
  return request;
}

// A process that may write into our memory until it is killed.
class WriterProcess {
 public:
  explicit WriterProcess(const std::string& uri) {
    int fds[2];
    if (pipe(fds) != 0) qFatal("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      const auto fabric = fabric::Fabric::Open(uri);
      const std::string offer = (*(*fabric)->Dial())->offer().Serialize();
      if (write(fds[1], offer.data(), offer.size()) < 0) _exit(1);
      close(fds[1]);
      while (true) pause();
    }
    close(fds[1]);
    std::array<char, 512> buffer;
    for (ssize_t count; (count = read(fds[0], buffer.data(), buffer.size())) > 0;) {
      offer_.append(buffer.data(), static_cast<std::size_t>(count));
    }
    close(fds[0]);
  }
  ~WriterProcess() { Kill(); }
  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  const std::string& offer() const { return offer_; }

 private:
  pid_t pid_ = -1;
  std::string offer_;
};

}  // namespace

class ValueAccessTest : public QObject {
  Q_OBJECT

  std::string uri_;
  std::unique_ptr<fabric::Fabric> fabric_;
  base::ManualClock clock_;
  std::unique_ptr<ValueAccess> values_;
  std::vector<ResultBundle> kept_;
  bool wanted_ = true, room_ = true;

  ValueAccess::Store Store() {
    return {.wants = [this](const base::Uid&) { return wanted_; },
            .has_room = [this](std::int64_t) { return room_; },
            .keep = [this](const ResultBundle& bundle, message::Kind,
                           const std::string&) -> absl::StatusOr<bool> {
              if (!room_) return MemoryFull(bundle.total_bytes);
              kept_.push_back(bundle);
              return true;
            }};
  }
  std::unique_ptr<fabric::Channel> Open(std::uint32_t segment, const std::string& node = "writer") {
    const auto dialer = *fabric_->Dial();
    v1::OpenSegmentRequest request;
    request.set_node_id(node);
    request.set_segment(segment);
    request.set_offer(dialer->offer().Serialize());
    const auto response = values_->OpenSegment(request);
    if (!response.ok()) return nullptr;
    return *dialer->Connect(*fabric::RemoteRegion::Parse(response->region()));
  }
  void Write(const v1::ReserveResultResponse& place, const std::string& bytes) {
    const auto channel = Open(place.segment());
    QVERIFY(channel != nullptr);
    const std::array pieces = {BytesOf(bytes)};
    const std::array chain = {fabric::Op::Write("write", place.offset(), pieces)};
    QVERIFY(channel->Execute(chain, base::SystemClock().Now() + 10s).ok());
  }
  void Expire() {
    clock_.Advance(base::Scaled(ValueAccess::kReservationTtl) + 1ms);
    values_->Sweep();
  }

 private Q_SLOTS:
  void init() {
    uri_ = "shm://access-" + base::Uid::GenerateRandom().ToString();
    fabric_ = *fabric::Fabric::Open(uri_);
    values_ = *ValueAccess::Create(*fabric_, {.budget_bytes = 1 << 20}, clock_);
    wanted_ = room_ = true;
  }
  void cleanup() {
    kept_.clear();
    values_.reset();
    fabric_.reset();
  }

  void WrittenAndCommitted_IsKeptWhereItWasWritten() {
    const std::vector<std::string> values = {std::string(1000, 'a'), "", std::string(77, 'b')};
    const v1::ReserveResultRequest request = Request(values);
    const auto place = values_->Reserve(request, Store());
    QVERIFY2(place.ok(), place.status().ToString().c_str());
    QCOMPARE(place->length(), std::uint64_t{Laid(values).size()});
    Write(*place, Laid(values));
    const auto committed = values_->Commit(CommitOf(place->reservation(), Laid(values)), Store());
    QVERIFY2(committed.ok(), committed.status().ToString().c_str());
    QVERIFY(committed->stored());
    QCOMPARE(kept_.size(), std::size_t{1});
    const ResultBundle& bundle = kept_[0];
    QCOMPARE(bundle.uid.ToString(), request.uid());
    QCOMPARE(bundle.total_bytes, std::int64_t{1077});
    for (std::size_t i = 0; i < values.size(); ++i) {
      QVERIFY(bundle.artifacts[i].data.text() == values[i]);
      QCOMPARE(bundle.artifacts[i].crc32c, base::Crc32c(BytesOf(values[i])));
      QCOMPARE(bundle.artifacts[i].info.sha256(), request.artifacts(static_cast<int>(i)).sha256());
    }
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{1});
    QCOMPARE(values_->slabs().PlaceOf(bundle.artifacts[0].data.bytes())->offset, place->offset());
    kept_.clear();
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
    QCOMPARE(Reason(values_->Commit(CommitOf(place->reservation(), ""), Store()).status()),
             std::string("RESERVATION_UNKNOWN"));
  }

  // Its writer looks for room elsewhere. What becomes of a replica is the store's to say.
  void WithoutRoom_ItIsRefused_BeforeItIsWrittenAndAfter() {
    const std::string bytes(1000, 'a');
    const auto place = values_->Reserve(Request({bytes}), Store());
    Write(*place, bytes);
    room_ = false;
    const auto committed = values_->Commit(CommitOf(place->reservation(), bytes), Store());
    QCOMPARE(committed.status().code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(committed.status()), std::string("RESULT_MEMORY_FULL"));
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
    v1::ReserveResultRequest request = Request({bytes});
    QCOMPARE(Reason(values_->Reserve(request, Store()).status()),
             std::string("RESULT_MEMORY_FULL"));
    request.set_replica(true);
    QVERIFY(values_->Reserve(request, Store()).ok());
  }

  void OtherBytes_AreRefused_AndTheRoomIsFree() {
    const auto place = values_->Reserve(Request({std::string(1000, 'a')}), Store());
    Write(*place, std::string(1000, 'b'));
    const auto committed =
        values_->Commit(CommitOf(place->reservation(), std::string(1000, 'a')), Store());
    QVERIFY(absl::IsDataLoss(committed.status()));
    QCOMPARE(Reason(committed.status()), std::string("BAD_CHECKSUM"));
    QVERIFY(kept_.empty());
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
  }

  void Reservation_IsForgottenInTime() {
    const auto place = values_->Reserve(Request({std::string(1000, 'a')}), Store());
    clock_.Advance(base::Scaled(ValueAccess::kReservationTtl) - 1ms);
    values_->Sweep();
    QCOMPARE(values_->reservations(), std::size_t{1});
    Expire();
    QCOMPARE(values_->reservations(), std::size_t{0});
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
    QCOMPARE(Reason(values_->Commit(CommitOf(place->reservation(), ""), Store()).status()),
             std::string("RESERVATION_UNKNOWN"));
  }

  // A writer that was only slow must not write over the next value.
  // A reader's key would let it change others' results.
  void Segment_IsWrittenByWhoHasAReservationThere_AndReadByOthers() {
    const std::string value(1000, 'a');
    const auto place = values_->Reserve(Request({value}), Store());
    const std::array pieces = {BytesOf(value)};
    const std::array chain = {fabric::Op::Write("write", place->offset(), pieces)};
    const auto deadline = base::SystemClock().Now() + 10s;
    const auto reader = Open(place->segment(), "reader");
    QVERIFY(reader->rights() == fabric::Rights::kReadOnly);
    QCOMPARE(Reason(reader->Execute(chain, deadline)), std::string("READ_ONLY"));
    QVERIFY(Open(place->segment())->Execute(chain, deadline).ok());
    QVERIFY(values_->Commit(CommitOf(place->reservation(), value), Store()).ok());
    // It has nothing to write there any more.
    QVERIFY(Open(place->segment())->rights() == fabric::Rights::kReadOnly);
    // Nobody but the database writes the index.
    QVERIFY(Open(0)->rights() == fabric::Rights::kReadOnly);
  }

  void RoomOfASlowWriter_IsNotUsedAgain_UntilItGivesUp() {
    const auto place = values_->Reserve(Request({std::string(1000, 'a')}), Store());
    Write(*place, std::string(1000, 'a'));
    Expire();
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{1});
    v1::CommitResultRequest commit = CommitOf(place->reservation(), std::string(1000, 'a'));
    QCOMPARE(Reason(values_->Commit(commit, Store()).status()), std::string("RESERVATION_UNKNOWN"));
    commit.set_abandon(true);
    const auto abandoned = values_->Commit(commit, Store());
    QVERIFY(abandoned.ok() && !abandoned->stored());
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
    QVERIFY(kept_.empty());
  }

  // Nobody gives it up, and this process lives on.
  void RoomOfAWriterThatNeverGivesUp_IsFreeInTime() {
    const auto place = values_->Reserve(Request({std::string(1000, 'a')}), Store());
    Write(*place, std::string(1000, 'a'));
    Expire();
    clock_.Advance(base::Scaled(ValueAccess::kFenceLimit) - 2ms);
    values_->Sweep();
    QCOMPARE(values_->reservations(), std::size_t{1});
    clock_.Advance(2ms);
    values_->Sweep();
    QCOMPARE(values_->reservations(), std::size_t{0});
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
  }

  void RoomOfAKilledWriter_IsFreeOnceItIsDead() {
    WriterProcess writer(uri_);
    const auto place = values_->Reserve(Request({std::string(1000, 'a')}), Store());
    v1::OpenSegmentRequest open;
    open.set_node_id("writer");
    open.set_segment(place->segment());
    open.set_offer(writer.offer());
    const auto opened = values_->OpenSegment(open);
    QVERIFY2(opened.ok(), opened.status().ToString().c_str());
    Expire();
    QCOMPARE(values_->reservations(), std::size_t{1});
    writer.Kill();
    values_->Sweep();
    QCOMPARE(values_->reservations(), std::size_t{0});
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
  }

  void Reservations_AreBoundedInNumberAndBytes() {
    for (std::size_t i = 0; i < ValueAccess::kMaxReservations; ++i) {
      QVERIFY(values_->Reserve(Request({"a"}), Store()).ok());
    }
    const auto refused = values_->Reserve(Request({"a"}), Store());
    QVERIFY(absl::IsResourceExhausted(refused.status()));
    QCOMPARE(Reason(refused.status()), std::string("TOO_MANY_RESERVATIONS"));
    Expire();
    QVERIFY(values_->Reserve(Request({std::string(700'000, 'a')}), Store()).ok());
    QCOMPARE(Reason(values_->Reserve(Request({std::string(700'000, 'a')}), Store()).status()),
             std::string("TOO_MANY_RESERVATIONS"));
  }

  void PeerThatIsLetInSlowly_HoldsUpNobody() {
    values::SlowFabric slow(*fabric_);
    const auto values = *ValueAccess::Create(slow, {.budget_bytes = 1 << 20}, clock_);
    const auto place = values->Reserve(Request({"a"}), Store());
    const auto open = [&](const std::string& peer) {
      v1::OpenSegmentRequest request;
      request.set_node_id(peer);
      request.set_segment(place->segment());
      request.set_offer((*slow.Dial())->offer().Serialize());
      return values->OpenSegment(request).ok();
    };
    slow.gate().HoldNext();
    std::atomic<bool> first{false};
    std::atomic<int> done{0};
    std::jthread waiting([&] { first = open("first"); });
    QVERIFY(slow.gate().WaitUntilHeld());
    std::jthread others([&] {
      done += open("second") ? 1 : 0;
      done += values->Reserve(Request({"b"}), Store()).ok() ? 1 : 0;
      done += values->slabs().Take(1000).ok() ? 1 : 0;
      values->Sweep();
      ++done;
    });
    const bool went_on = testing::Eventually([&] { return done == 4; });
    slow.gate().Release();
    waiting.join();
    others.join();
    QVERIFY(went_on);
    QVERIFY(first);
  }

  void NodeIds_HaveUpTo128Bytes() {
    v1::ReserveResultRequest request = Request({"a"});
    request.set_sender(std::string(128, 's'));
    const auto place = values_->Reserve(request, Store());
    QVERIFY2(place.ok(), place.status().ToString().c_str());
    v1::OpenSegmentRequest open;
    open.set_node_id(request.sender());
    open.set_segment(place->segment());
    open.set_offer((*fabric_->Dial())->offer().Serialize());
    QVERIFY(values_->OpenSegment(open).ok());
  }

  void UnwantedResult_IsToldSoBeforeItIsWritten() {
    wanted_ = false;
    const auto place = values_->Reserve(Request({"a"}), Store());
    QVERIFY(place.ok());
    QCOMPARE(place->reservation(), std::uint64_t{0});
    QCOMPARE(values_->slabs().stats().slabs, std::uint64_t{0});
  }

  void HostileRequests_AreRefused() {
    using Edit = std::function<void(v1::ReserveResultRequest&)>;
    const std::vector<std::pair<const char*, Edit>> cases = {
        {"BAD_UID", [](auto& r) { r.set_uid("x"); }},
        {"BAD_NODE", [](auto& r) { r.clear_sender(); }},
        {"BAD_NODE", [](auto& r) { r.set_sender(std::string(129, 's')); }},
        {"BAD_APP", [](auto& r) { r.set_app_id(std::string(64, 's')); }},
        {"BAD_TIME", [](auto& r) { r.mutable_create_time()->set_nanos(-1); }},
        {"BAD_TIME", [](auto& r) { r.mutable_create_time()->set_seconds(1LL << 62); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.clear_artifacts(); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.mutable_artifacts(0)->set_size_bytes(0); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.mutable_artifacts(0)->set_size_bytes(-1); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.mutable_artifacts(0)->set_size_bytes(1LL << 62); }},
        {"BAD_ARTIFACTS",
         [](auto& r) {
           r.mutable_artifacts(0)->set_size_bytes(1LL << 32);
           *r.add_artifacts() = r.artifacts(0);
           r.mutable_artifacts(1)->set_artifact("w");
         }},
        {"BAD_ARTIFACTS", [](auto& r) { *r.add_artifacts() = r.artifacts(0); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.mutable_artifacts(0)->clear_artifact(); }},
        {"BAD_ARTIFACTS",
         [](auto& r) { r.mutable_artifacts(0)->set_artifact(std::string(65, 'n')); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.mutable_artifacts(0)->set_media_type("a b"); }},
        {"BAD_ARTIFACTS", [](auto& r) { r.mutable_artifacts(0)->set_sha256("ab"); }},
        {"BAD_ARTIFACTS",
         [](auto& r) { r.mutable_artifacts(0)->set_sha256(std::string(64, 'A')); }},
        {"RESULT_BUDGET_EXCEEDED",
         [](auto& r) { r.mutable_artifacts(0)->set_size_bytes(1LL << 32); }},
    };
    for (const auto& [reason, change] : cases) {
      v1::ReserveResultRequest request = Request({"a"});
      change(request);
      QCOMPARE(Reason(values_->Reserve(request, Store()).status()), std::string(reason));
    }
    QCOMPARE(values_->reservations(), std::size_t{0});
    v1::OpenSegmentRequest open;
    QCOMPARE(Reason(values_->OpenSegment(open).status()), std::string("BAD_NODE"));
    open.set_node_id("n");
    open.set_offer("nonsense");
    QCOMPARE(Reason(values_->OpenSegment(open).status()), std::string("MALFORMED_OFFER"));
    open.set_offer((*fabric_->Dial())->offer().Serialize());
    open.set_segment(1);
    QCOMPARE(Reason(values_->OpenSegment(open).status()), std::string("SEGMENT_UNKNOWN"));
  }

  void Serve_TellsPeersWhatIsInSlabsNow() {
    const auto slab = *values_->slabs().Take(5000);
    const auto artifact = [](const std::shared_ptr<const void>& owner,
                             std::span<const std::byte> bytes) {
      return StoredArtifact{.data = {owner, bytes}, .crc32c = base::Crc32c(bytes)};
    };
    const auto index = Open(0);
    const auto find = [&](const values::ValueKey& key) {
      std::array<std::uint64_t, values::kBucketBytes / 8> bucket;
      const std::array chain = {fabric::Op::ReadWords(
          "bucket", values::BucketOffset(key, index->length_bytes()), bucket)};
      if (!index->Execute(chain, base::SystemClock().Now() + 10s).ok()) qFatal("unreadable");
      return values::FindInBucket(key, bucket);
    };
    const base::Uid uid = base::Uid::GenerateRandom();
    const std::string heap(100, 'h');
    const std::vector<StoredArtifact> artifacts = {
        artifact(slab.owner, slab.bytes.first(100)), artifact(nullptr, BytesOf(heap)),
        artifact(slab.owner, slab.bytes.subspan(128, 300))};
    values_->Serve(uid, &artifacts);
    QVERIFY(find({uid, 0})->place == (values::Place{slab.place.segment, slab.place.offset, 100}));
    QVERIFY(!find({uid, 1}).has_value());
    QVERIFY(find({uid, 2})->place ==
            (values::Place{slab.place.segment, slab.place.offset + 128, 300}));
    QCOMPARE(find({uid, 2})->crc32c, base::Crc32c(slab.bytes.subspan(128, 300)));
    // The result moves to memory that peers cannot read, as a spilled one does.
    const std::vector<StoredArtifact> elsewhere = {artifact(nullptr, BytesOf(heap))};
    values_->Serve(uid, &elsewhere);
    QVERIFY(!find({uid, 0}).has_value() && !find({uid, 2}).has_value());
    values_->Serve(uid, &artifacts);
    QVERIFY(find({uid, 0}).has_value());
    values_->Serve(uid, nullptr);
    QVERIFY(!find({uid, 0}).has_value() && !find({uid, 2}).has_value());
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::ValueAccessTest)
#include "value_access_test.moc"
