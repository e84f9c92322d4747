// Both kinds of rendezvous: threads at a LocalMeeting, and sockets at a RendezvousHub.
#include "stages/collectives/rendezvous.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <QtTest>

#include "stages/collectives/socket_rendezvous.h"
#include "tests/collectives/worlds.h"
#include "tests/eventually.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::collectives {
namespace {

std::string Letter(std::uint32_t from, std::uint32_t to, int round) {
  return std::to_string(from) + " to " + std::to_string(to) + " in " + std::to_string(round);
}

}  // namespace

class RendezvousTest : public QObject {
  Q_OBJECT

  QTemporaryDir folder_;
  QString kind_;
  std::unique_ptr<LocalMeeting> meeting_;
  std::unique_ptr<RendezvousHub> hub_;

  [[nodiscard]] std::string Path() const { return folder_.filePath("hub").toStdString(); }
  void Begin(std::uint32_t workers) {
    if (kind_ == "threads") {
      meeting_ = std::make_unique<LocalMeeting>(workers);
      return;
    }
    auto hub = RendezvousHub::Listen(Path(), workers);
    QVERIFY2(hub.ok(), hub.status().ToString().c_str());
    hub_ = *std::move(hub);
  }
  std::unique_ptr<Rendezvous> Join(std::uint32_t index, std::uint32_t workers) {
    if (kind_ == "threads") return meeting_->Join(index);
    auto seat = JoinRendezvous(Path(), index, workers);
    return seat.ok() ? *std::move(seat) : nullptr;
  }
  static void Correspond(Rendezvous& seat, std::uint32_t index, std::uint32_t workers, int round,
                         Complaints& complaints) {
    std::vector<std::string> letters;
    for (std::uint32_t to = 0; to < workers; ++to) letters.push_back(Letter(index, to, round));
    const auto answers = seat.Exchange(std::move(letters), Soon());
    if (!answers.ok()) return complaints.Add(answers.status().ToString());
    for (std::uint32_t from = 0; from < workers; ++from) {
      if ((*answers)[from] != Letter(from, index, round)) complaints.Add((*answers)[from]);
    }
  }

 private Q_SLOTS:
  void initTestCase_data() {
    QTest::addColumn<QString>("kind");
    QTest::newRow("threads") << "threads";
    QTest::newRow("sockets") << "sockets";
  }
  void init() {
    QFETCH_GLOBAL(QString, kind);
    kind_ = kind;
  }
  void cleanup() {
    hub_.reset();
    meeting_.reset();
  }

  void Rounds_BringEachTextToItsWorker() {
    constexpr std::uint32_t kWorkers = 5;
    Begin(kWorkers);
    Complaints complaints;
    InThreads(kWorkers, [&](std::uint32_t i) {
      const auto seat = Join(i, kWorkers);
      for (int round = 0; round < 50; ++round) {
        Correspond(*seat, i, kWorkers, round, complaints);
      }
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void SeatOfAWorkerThatLeft_IsFree() {
    Begin(2);
    Complaints complaints;
    const auto stays = Join(0, 2);
    for (int life = 0; life < 3; ++life) {
      InThreads(2, [&](std::uint32_t i) {
        if (i == 0) return Correspond(*stays, 0, 2, life, complaints);
        Correspond(*Join(1, 2), 1, 2, life, complaints);
      });
    }
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void WorkerThatDoesNotCome_IsAwaitedUntilTheDeadline() {
    Begin(2);
    {
      const auto seat = Join(0, 2);
      const auto round = seat->Exchange({"a", "b"}, After(std::chrono::milliseconds(30)));
      QCOMPARE(Reason(round.status()), std::string("NOT_ALL_CAME"));
    }
    // The one that gave up does not count as one that came.
    Complaints complaints;
    InThreads(2, [&](std::uint32_t i) { Correspond(*Join(i, 2), i, 2, 1, complaints); });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void BadRounds_AreRefused() {
    Begin(2);
    const auto seat = Join(0, 2);
    QCOMPARE(Reason(seat->Exchange({"a"}, Soon()).status()), std::string("BAD_ROUND"));
    const auto round = seat->Exchange({"", std::string(kMaxTextBytes + 1, 'x')}, Soon());
    QCOMPARE(Reason(round.status()), std::string("BAD_ROUND"));
  }

  void Seats_AreOfOneWorkerEach() {
    if (kind_ == "threads") QSKIP("the caller sees to it");
    Begin(2);
    const auto first = Join(0, 2);
    const auto second = Join(0, 2);
    Complaints complaints;
    std::atomic<int> refused = 0;
    InThreads(3, [&](std::uint32_t i) {
      Rendezvous* seat = i == 0 ? first.get() : second.get();
      if (i < 2) {
        const auto round = seat->Exchange({"", ""}, Soon());
        if (Reason(round.status()) == "BAD_SEAT") refused.fetch_add(1);
        return;
      }
      const bool one_was_refused = testing::Eventually([&] { return refused.load() == 1; });
      if (!one_was_refused) complaints.Add("nobody was refused");
      (void)Join(1, 2)->Exchange({"", ""}, Soon());
    });
    QCOMPARE(refused.load(), 1);
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
    const auto stranger = JoinRendezvous(Path(), 2, 3);
    QCOMPARE(Reason((*stranger)->Exchange({"", "", ""}, Soon()).status()), std::string("BAD_SEAT"));
  }

  void Hub_OutlivesWhatIsNoPacket() {
    if (kind_ == "threads") QSKIP("threads have no packets");
    Begin(1);
    for (const std::string& bytes : {std::string("x"), std::string(5000, '\0'), std::string()}) {
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::ranges::copy(Path(), address.sun_path);
      QCOMPARE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
      (void)!write(fd, bytes.data(), bytes.size());
      ::close(fd);
    }
    Complaints complaints;
    Correspond(*Join(0, 1), 0, 1, 1, complaints);
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void Hub_IsForThisUserAlone() {
    if (kind_ == "threads") QSKIP("threads have no socket");
    Begin(1);
    struct stat info {};
    QCOMPARE(::stat(Path().c_str(), &info), 0);
    QCOMPARE(info.st_mode & 0777, mode_t{0600});
    hub_.reset();
    QVERIFY(::stat(Path().c_str(), &info) != 0);
    const QTemporaryDir open_folder;
    QCOMPARE(chmod(qPrintable(open_folder.path()), 0755), 0);
    const auto hub = RendezvousHub::Listen(open_folder.filePath("hub").toStdString(), 1);
    QCOMPARE(Reason(hub.status()), std::string("INSECURE_FOLDER"));
    QCOMPARE(Reason(JoinRendezvous(Path(), 0, 1).status()), std::string("RENDEZVOUS_GONE"));
    QCOMPARE(Reason(JoinRendezvous(std::string(101, 'x'), 0, 1).status()), std::string("BAD_PATH"));
    QCOMPARE(Reason(JoinRendezvous(Path(), 1, 1).status()), std::string("BAD_WORLD"));
    QCOMPARE(Reason(RendezvousHub::Listen(Path(), 65).status()), std::string("BAD_WORLD"));
  }

  void HubThatEnds_EndsItsSeats() {
    if (kind_ == "threads") QSKIP("a meeting outlives its seats");
    Begin(2);
    const auto seat = Join(0, 2);
    std::thread waits([&] {
      QCOMPARE(Reason(seat->Exchange({"", ""}, Soon()).status()), std::string("RENDEZVOUS_GONE"));
    });
    hub_.reset();
    waits.join();
  }
};

}  // namespace onepiece::collectives

ONEPIECE_TEST(onepiece::collectives::RendezvousTest)
#include "rendezvous_test.moc"
