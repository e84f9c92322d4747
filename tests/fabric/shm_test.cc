// The properties of shared memory alone: names, processes, a full file system.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <array>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/shm/segment.h"
#include "cluster/fabric/wire.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::fabric {
namespace {

// A child process that has registered regions and waits to be killed.
struct DoomedChild {
  pid_t pid = -1;
  RemoteRegion remote;  // The first of `regions`.
  std::vector<RemoteRegion> regions;
  void Kill() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    pid = -1;
  }
  ~DoomedChild() { Kill(); }
};

/// The rights of this process's mappings of a segment, sorted.
QStringList MappingsOf(const std::string& segment) {
  QFile file("/proc/self/maps");
  QStringList rights;
  if (!file.open(QIODevice::ReadOnly)) return rights;
  for (const QByteArray& line : file.readAll().split('\n')) {
    if (line.contains(segment.c_str())) rights << QString::fromUtf8(line.split(' ').at(1));
  }
  rights.sort();
  return rights;
}

void StartChild(const std::string& cluster, DoomedChild& child, int segments = 1) {
  int fds[2];
  QCOMPARE(pipe(fds), 0);
  child.pid = fork();
  QVERIFY(child.pid >= 0);
  if (child.pid == 0) {
    auto fabric = Fabric::Open("shm://" + cluster);
    std::vector<std::unique_ptr<Region>> regions;
    std::string bytes;
    for (int i = 0; i < segments; ++i) {
      regions.push_back(*(*fabric)->Register(4096, "child"));
      const auto link = *ConnectLoopback(**fabric, *regions.back());
      AppendText(bytes, link.access->remote().Serialize());
    }
    if (write(fds[1], bytes.data(), bytes.size()) < 0) _exit(1);
    close(fds[1]);
    while (true) pause();
  }
  close(fds[1]);
  std::string bytes;
  std::array<char, 512> buffer;
  for (ssize_t count; (count = read(fds[0], buffer.data(), buffer.size())) > 0;) {
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
  }
  close(fds[0]);
  WireReader reader(bytes);
  for (int i = 0; i < segments; ++i) {
    const auto remote = RemoteRegion::Parse(reader.Text(bytes.size()));
    QVERIFY(remote.ok());
    child.regions.push_back(*remote);
  }
  child.remote = child.regions.front();
}

}  // namespace

class ShmTest : public QObject {
  Q_OBJECT

  std::string cluster_ = "shm-" + std::to_string(getpid());
  std::unique_ptr<Fabric> fabric_;

 private Q_SLOTS:
  void init() {
    auto fabric = Fabric::Open("shm://" + cluster_);
    QVERIFY(fabric.ok());
    fabric_ = *std::move(fabric);
  }

  void Open_RefusesWhatItIsNot_data() {
    QTest::addColumn<QString>("uri");
    QTest::addColumn<QString>("reason");
    QTest::newRow("no scheme") << "cluster"
                               << "BAD_FABRIC_URI";
    QTest::newRow("unknown scheme") << "tcp://x"
                                    << "BAD_FABRIC_URI";
    QTest::newRow("no cluster") << "shm://"
                                << "BAD_FABRIC_URI";
    QTest::newRow("path in the name") << "shm://../x"
                                      << "BAD_FABRIC_URI";
    QTest::newRow("dot in the name") << "shm://a.b"
                                     << "BAD_FABRIC_URI";
#ifdef ONEPIECE_HAVE_VERBS
    QTest::newRow("verbs") << "verbs://no_such_device"
                           << "NO_RDMA_DEVICE";
#else
    QTest::newRow("verbs") << "verbs://no_such_device"
                           << "FABRIC_NOT_BUILT";
#endif
#ifdef ONEPIECE_HAVE_UCX
    QTest::newRow("ucx") << "ucx://nosuchdevice"
                         << "BAD_FABRIC_URI";
#else
    QTest::newRow("ucx") << "ucx://"
                         << "FABRIC_NOT_BUILT";
#endif
  }
  void Open_RefusesWhatItIsNot() {
    QFETCH(QString, uri);
    QFETCH(QString, reason);
    QCOMPARE(QString::fromStdString(Reason(Fabric::Open(uri.toStdString()).status())), reason);
  }

  void Parse_ReturnsWhatSerializeWroteAndNothingElse() {
    const RemoteRegion region{.backend = "shm",
                              .address = "/onepiece.c.1-2-3.x",
                              .length_bytes = 64,
                              .key = 5,
                              .details = "more"};
    const std::string bytes = region.Serialize();
    auto parsed = RemoteRegion::Parse(bytes);
    QVERIFY(parsed.ok());
    QVERIFY(*parsed == region);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      QCOMPARE(Reason(RemoteRegion::Parse(bytes.substr(0, size)).status()),
               std::string("MALFORMED_REGION"));
    }
    QVERIFY(!RemoteRegion::Parse(bytes + "x").ok());
    std::string huge = bytes;
    huge.replace(8, 8, 8, '\xff');
    QVERIFY(!RemoteRegion::Parse(huge).ok());
  }

  void Parse_KnowsRegionsForReading() {
    RemoteRegion region{.backend = "shm", .address = "/a", .length_bytes = 64, .key = 5};
    const std::string bytes = region.Serialize();
    region.rights = Rights::kReadOnly;
    const auto parsed = RemoteRegion::Parse(region.Serialize());
    QVERIFY(parsed.ok() && *parsed == region);
    std::string unknown = bytes;
    AppendU64(unknown, 2);
    QCOMPARE(Reason(RemoteRegion::Parse(unknown).status()), std::string("MALFORMED_REGION"));
    std::string twice = region.Serialize();
    AppendU64(twice, 1);
    QCOMPARE(Reason(RemoteRegion::Parse(twice).status()), std::string("MALFORMED_REGION"));
  }

  void Reader_MapsTheSegmentForReadingAlone() {
    DoomedChild child;
    StartChild(cluster_, child);
    RemoteRegion remote = child.remote;
    remote.rights = Rights::kReadOnly;
    const auto reader = (*fabric_->Dial())->Connect(remote);
    QVERIFY2(reader.ok(), reader.status().ToString().c_str());
    QCOMPARE(MappingsOf(remote.address), QStringList{"r--s"});
    // A writer of this process has a mapping of its own, which later readers share.
    const auto writer = (*fabric_->Dial())->Connect(child.remote);
    QVERIFY(writer.ok());
    const auto second = (*fabric_->Dial())->Connect(remote);
    QVERIFY(second.ok());
    QCOMPARE(MappingsOf(remote.address), (QStringList{"r--s", "rw-s"}));
    std::uint64_t old_value = 0, seen = 0;
    const Op add = Op::FetchAdd("add", 0, 5, &old_value);
    const Op read = Op::ReadWords("read", 0, {&seen, 1});
    const auto soon = base::SystemClock().Now() + std::chrono::seconds(10);
    QVERIFY((*writer)->Execute({&add, 1}, soon).ok());
    QVERIFY((*reader)->Execute({&read, 1}, soon).ok());
    QCOMPARE(seen, std::uint64_t{5});
    child.Kill();
    QCOMPARE(*UnlinkStale(cluster_), 1);
  }

  void Connect_RefusesSegmentsThatOthersMayOpen() {
    DoomedChild child;
    StartChild(cluster_, child);
    const std::string path = "/dev/shm" + child.remote.address;
    for (const mode_t mode : {0644u, 0620u, 0602u}) {
      QCOMPARE(chmod(path.c_str(), mode), 0);
      QCOMPARE(Reason((*fabric_->Dial())->Connect(child.remote).status()),
               std::string("WRONG_REGION"));
    }
    child.Kill();
    QCOMPARE(*UnlinkStale(cluster_), 0);
    QCOMPARE(chmod(path.c_str(), 0600), 0);
    if (geteuid() == 0) {
      QCOMPARE(chown(path.c_str(), 65534, 65534), 0);
      QCOMPARE(Reason((*fabric_->Dial())->Connect(child.remote).status()),
               std::string("WRONG_REGION"));
      QCOMPARE(*UnlinkStale(cluster_), 0);
      QCOMPARE(chown(path.c_str(), 0, 0), 0);
    }
    QCOMPARE(*UnlinkStale(cluster_), 1);
  }

  // Two clusters of one user differ in their ids alone.
  void Connect_RefusesSegmentsOfAnotherCluster() {
    DoomedChild child;
    StartChild(cluster_ + "-other", child);
    QCOMPARE(Reason((*fabric_->Dial())->Connect(child.remote).status()),
             std::string("WRONG_FABRIC"));
    child.Kill();
    QCOMPARE(*UnlinkStale(cluster_ + "-other"), 1);
  }

  void Register_NamesASegmentOfOursOnlyForUs() {
    auto region = fabric_->Register(4096, "mine");
    QVERIFY(region.ok());
    auto link = ConnectLoopback(*fabric_, **region);
    QVERIFY(link.ok());
    const std::string path = "/dev/shm" + link->access->remote().address;
    link->access.reset();
    struct stat info {};
    QCOMPARE(stat(path.c_str(), &info), 0);
    QCOMPARE(info.st_mode & 0777u, 0600u);
    QVERIFY(path.starts_with("/dev/shm/onepiece." + cluster_ + "."));
    region->reset();
    QVERIFY(stat(path.c_str(), &info) != 0);
  }

  void Register_AnswersResourceExhaustedWhenShmIsFull() {
    auto region = fabric_->Register(std::uint64_t{1} << 44, "huge");
    QCOMPARE(region.status().code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(region.status()), std::string("SHARED_MEMORY_FULL"));
    const auto leftover = base::GetReason(region.status()).metadata.at("segment");
    QVERIFY(shm_unlink(leftover.c_str()) != 0);
  }

  void Connect_ReachesAnotherProcessAndNoticesItsDeath() {
    DoomedChild child;
    StartChild(cluster_, child);
    auto channel = (*fabric_->Dial())->Connect(child.remote);
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    const auto soon = [] { return base::SystemClock().Now() + std::chrono::seconds(10); };
    std::uint64_t old_value = 1;
    const Op op = Op::FetchAdd("add", 0, 5, &old_value);
    QVERIFY((*channel)->Execute({&op, 1}, soon()).ok());
    QCOMPARE(old_value, std::uint64_t{0});

    child.Kill();
    absl::Status status;
    const auto limit = soon();
    while (status.ok() && base::SystemClock().Now() < limit) {
      status = (*channel)->Execute({&op, 1}, soon());
    }
    QCOMPARE(Reason(status), std::string("PEER_GONE"));
    QCOMPARE(Reason((*fabric_->Dial())->Connect(child.remote).status()), std::string("PEER_GONE"));
    auto removed = UnlinkStale(cluster_);
    QVERIFY(removed.ok());
    QCOMPARE(*removed, 1);
  }

  void SegmentsThatWereOnlyAttached_AreForgotten() {
    DoomedChild child;
    StartChild(cluster_, child, 50);
    const std::size_t before = ShmSegment::RegisteredSegments();
    for (const RemoteRegion& remote : child.regions) {
      QVERIFY((*fabric_->Dial())->Connect(remote).ok());  // And at once closed.
      QVERIFY(ShmSegment::RegisteredSegments() <= before + 2);
    }
    child.Kill();
    QCOMPARE(*UnlinkStale(cluster_), 50);
  }

  void UnlinkStale_LeavesSegmentsOfTheLivingAndOfOthers() {
    auto region = fabric_->Register(4096, "mine");
    QVERIFY(region.ok());
    DoomedChild child;
    StartChild(cluster_ + "-other", child);
    child.Kill();
    auto removed = UnlinkStale(cluster_);
    QVERIFY(removed.ok());
    QCOMPARE(*removed, 0);
    QCOMPARE(*UnlinkStale(cluster_ + "-other"), 1);
    QVERIFY(ConnectLoopback(*fabric_, **region).ok());
  }

  // Containers can share /dev/shm, and each has process ids of its own.
  void UnlinkStale_LeavesSegmentsOfTheLivingInAnotherPidNamespace() {
    DoomedChild child;
    StartChild(cluster_, child);
    const pid_t other = fork();
    QVERIFY(other >= 0);
    if (other == 0) {
      // The next child is the first process of a new namespace.
      if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(2);
      const pid_t first = fork();
      if (first == 0) {
        const auto removed = UnlinkStale(cluster_);
        _exit(removed.ok() && *removed == 0 ? 0 : 1);
      }
      int status = 0;
      waitpid(first, &status, 0);
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
    }
    int status = 0;
    waitpid(other, &status, 0);
    QVERIFY(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) QSKIP("a pid namespace of its own needs privileges");
    QCOMPARE(WEXITSTATUS(status), 0);
    QVERIFY((*fabric_->Dial())->Connect(child.remote).ok());
    child.Kill();
    QCOMPARE(*UnlinkStale(cluster_), 1);
  }

  void Watch_TellsDeadFromAliveAndReusedIds() {
    auto self = WatchProcess(SelfIdentity());
    QVERIFY(self.ok());
    QVERIFY(!(*self)->IsDead());
    PeerIdentity reused = SelfIdentity();
    ++reused.start_time;
    auto other = WatchProcess(reused);
    QVERIFY(other.ok());
    QVERIFY((*other)->IsDead());
    auto nobody = WatchProcess({.host = SelfIdentity().host});
    QVERIFY(nobody.ok());
    QVERIFY((*nobody)->IsDead());
    auto elsewhere = WatchProcess({.host = SelfIdentity().host + 1, .pid = 1, .start_time = 1});
    QVERIFY(elsewhere.ok());
    QVERIFY(!(*elsewhere)->IsDead());
  }

  void Watch_WithoutDescriptorsLeft_IsAnErrorAndNoDeath() {
    const PeerIdentity self = SelfIdentity();
    rlimit limit{};
    QCOMPARE(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int lowest_free = dup(STDIN_FILENO);
    QVERIFY(lowest_free >= 0);
    close(lowest_free);
    std::vector<absl::Status> results;
    std::vector<PeerIdentity> identities;
    for (const int left : {0, 1}) {  // With one left the process can be opened, but not read.
      const rlimit low{static_cast<rlim_t>(lowest_free + left), limit.rlim_max};
      setrlimit(RLIMIT_NOFILE, &low);
      results.push_back(WatchProcess(self).status());
      identities.push_back(SelfIdentity());
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    for (const absl::Status& result : results) QVERIFY(absl::IsInternal(result));
    for (const PeerIdentity& identity : identities) QVERIFY(identity == self);
  }

  void Offer_ParsesWhatSerializeWroteAndNothingElse() {
    const Offer offer{.backend = "shm", .peer = SelfIdentity(), .details = "details"};
    const std::string bytes = offer.Serialize();
    auto parsed = Offer::Parse(bytes);
    QVERIFY(parsed.ok());
    QVERIFY(*parsed == offer);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      QCOMPARE(Reason(Offer::Parse(bytes.substr(0, size)).status()),
               std::string("MALFORMED_OFFER"));
    }
    std::string other = bytes;
    other[8] = static_cast<char>(other[8] + 1);
    QCOMPARE(Reason(Offer::Parse(other).status()), std::string("PROTOCOL_VERSION"));
  }

  void Accept_RefusesOffersOfOtherHostsAndBackends() {
    auto region = fabric_->Register(4096, "mine");
    QVERIFY(region.ok());
    Offer offer = (*fabric_->Dial())->offer();
    ++offer.peer.host;
    QCOMPARE(Reason((*region)->Accept(offer).status()), std::string("WRONG_FABRIC"));
    offer = (*fabric_->Dial())->offer();
    offer.backend = "verbs";
    QCOMPARE(Reason((*region)->Accept(offer).status()), std::string("WRONG_FABRIC"));
  }
};

}  // namespace onepiece::fabric

ONEPIECE_TEST(onepiece::fabric::ShmTest)
#include "shm_test.moc"
