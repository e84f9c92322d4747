// Which peers stay enrolled, with accesses that live, die and resist as the test says.
#include "cluster/values/enrollments.h"

#include <QtTest>
#include <list>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::values {
namespace {

struct PeerState {
  std::int32_t pid = 0;
  bool dead = false;
  bool revocable = true;
  bool enrolled = false;
};

class FakeAccess final : public fabric::Access {
 public:
  FakeAccess(PeerState& state, fabric::Rights rights)
      : state_(state), peer_{.host = 1, .pid = state.pid}, remote_{.rights = rights} {
    state_.enrolled = true;
  }
  ~FakeAccess() override { state_.enrolled = false; }
  const fabric::RemoteRegion& remote() const override { return remote_; }
  const fabric::PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return state_.dead; }
  bool Revoke() override { return state_.revocable || state_.dead; }

 private:
  PeerState& state_;
  const fabric::PeerIdentity peer_;
  const fabric::RemoteRegion remote_;
};

class FakeRegion final : public fabric::Region {
 public:
  std::span<std::byte> bytes() override { return {}; }
  absl::StatusOr<std::unique_ptr<fabric::Access>> Accept(const fabric::Offer& offer,
                                                         fabric::Rights rights) override {
    auto& state = peers_.emplace_back();
    state.pid = offer.peer.pid;
    state.revocable = revocable_;
    return std::make_unique<FakeAccess>(state, rights);
  }
  void MakeRevocable(bool revocable) { revocable_ = revocable; }
  /// One for each Accept, in their order.
  PeerState& at(std::size_t i) {
    return *std::next(peers_.begin(), static_cast<std::ptrdiff_t>(i));
  }
  std::size_t enrolled() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(peers_, [](const PeerState& peer) { return peer.enrolled; }));
  }

 private:
  std::list<PeerState> peers_;
  bool revocable_ = true;
};

}  // namespace

class EnrollmentsTest : public QObject {
  Q_OBJECT

  FakeRegion region_;
  std::unique_ptr<Enrollments> enrollments_;
  int last_pid_ = 0;

  absl::Status Enroll(const std::string& peer, fabric::Rights rights = fabric::Rights::kReadWrite) {
    fabric::Offer offer;
    offer.peer = {.host = 1, .pid = ++last_pid_};
    return enrollments_->Enroll(region_, peer, offer, rights).status();
  }

 private Q_SLOTS:
  void init() {
    region_ = FakeRegion();
    enrollments_ = std::make_unique<Enrollments>();
  }
  void cleanup() { enrollments_.reset(); }

  void PeersThatDied_Leave() {
    for (int i = 0; i < 10; ++i) QVERIFY(Enroll("peer-" + std::to_string(i)).ok());
    for (std::size_t i = 0; i < 9; ++i) region_.at(i).dead = true;
    enrollments_->DropDead();
    QCOMPARE(region_.enrolled(), std::size_t{1});
    QVERIFY(region_.at(9).enrolled);
  }

  // Nobody sees the death of a process on another host.
  void PeersBeyondTheBound_TheOldestLeaves() {
    constexpr std::size_t kPeers = Enrollments::kMaxEnrollments + 500;
    for (std::size_t i = 0; i < kPeers; ++i) QVERIFY(Enroll("peer-" + std::to_string(i)).ok());
    QCOMPARE(region_.enrolled(), Enrollments::kMaxEnrollments);
    QVERIFY(!region_.at(499).enrolled);
    QVERIFY(region_.at(500).enrolled);
  }

  // A process that lives and cannot be fenced stays known, or Fence would not tell the truth.
  void PeersBeyondTheBound_ThatCannotBeEnded_KeepOthersOut() {
    region_.MakeRevocable(false);
    for (std::size_t i = 0; i < Enrollments::kMaxEnrollments; ++i)
      QVERIFY(Enroll("peer-" + std::to_string(i)).ok());
    const absl::Status refused = Enroll("one more");
    QVERIFY(absl::IsResourceExhausted(refused));
    QCOMPARE(Reason(refused), std::string("TOO_MANY_PEERS"));
    QCOMPARE(region_.enrolled(), Enrollments::kMaxEnrollments);
    QVERIFY(!enrollments_->Fence("peer-0"));
    region_.at(7).dead = true;
    QVERIFY(Enroll("one more").ok());
  }

  // A reader spoils nothing, so nobody waits for it.
  void Readers_NeedNoFence() {
    region_.MakeRevocable(false);
    QVERIFY(Enroll("peer", fabric::Rights::kReadOnly).ok());
    QVERIFY(enrollments_->Fence("peer"));
    // It reserves room, and so it comes back as a writer.
    QVERIFY(Enroll("peer").ok());
    QCOMPARE(region_.enrolled(), std::size_t{1});
    QVERIFY(!enrollments_->Fence("peer"));
    // One that cannot be cut off gives way to the others all the same.
    for (std::size_t i = 0; i < Enrollments::kMaxEnrollments + 10; ++i)
      QVERIFY(Enroll("reader-" + std::to_string(i), fabric::Rights::kReadOnly).ok());
  }

  void Peer_ThatComesBack_HasOneEnrollment() {
    for (int i = 0; i < 5; ++i) QVERIFY(Enroll("peer").ok());
    QCOMPARE(region_.enrolled(), std::size_t{1});
    QVERIFY(region_.at(4).enrolled);
    QVERIFY(enrollments_->Fence("peer"));
    QCOMPARE(region_.enrolled(), std::size_t{0});
  }
};

}  // namespace onepiece::values

ONEPIECE_TEST(onepiece::values::EnrollmentsTest)
#include "enrollments_test.moc"
