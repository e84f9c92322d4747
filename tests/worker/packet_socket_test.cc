#include "stages/worker/packet_socket.h"

#include <fcntl.h>
#include <unistd.h>

#include "onepiece/v1/worker.pb.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::worker {

class PacketSocketTest : public QObject {
  Q_OBJECT

  static base::MonotonicTime Soon() { return base::SystemClock().Now() + std::chrono::seconds(20); }

 private Q_SLOTS:
  void Packets_ComeWhole_WithTheirFile() {
    auto ends = PacketSocket::Pair();
    QVERIFY(ends.ok());
    v1::ToWorker sent, got;
    sent.mutable_load()->set_model_dir(std::string(100'000, 'm'));
    const FileDescriptor file(::open("/proc/self/exe", O_RDONLY));
    QVERIFY(ends->first.Send(sent, file.get(), Soon()).ok());
    auto brought = ends->second.Receive(got, Soon());
    QVERIFY(brought.ok());
    QCOMPARE(got.load().model_dir().size(), std::size_t{100'000});
    QVERIFY(brought->valid() && brought->get() != file.get());
    QVERIFY((::fcntl(brought->get(), F_GETFD) & FD_CLOEXEC) != 0);
    QVERIFY(ends->first.Send(sent, -1, Soon()).ok());
    brought = ends->second.Receive(got, Soon());
    QVERIFY(brought.ok() && !brought->valid());
  }

  void WhoCloses_IsGone() {
    auto ends = PacketSocket::Pair();
    QVERIFY(ends.ok());
    ends->first = PacketSocket();
    v1::ToWorker message;
    message.mutable_open();
    QCOMPARE(Reason(ends->second.Receive(message, Soon()).status()), std::string("PEER_GONE"));
    QCOMPARE(Reason(ends->second.Send(message, -1, Soon())), std::string("PEER_GONE"));
  }

  void WhoIsSilent_IsWaitedForUntilTheDeadline() {
    auto ends = PacketSocket::Pair();
    QVERIFY(ends.ok());
    v1::ToWorker message;
    const auto now = base::SystemClock().Now();
    QCOMPARE(ends->second.Receive(message, now).status().code(),
             absl::StatusCode::kDeadlineExceeded);
    // Nobody takes anything: the queue of the other end fills.
    message.mutable_load()->set_model_dir(std::string(100'000, 'm'));
    absl::Status sent;
    for (int i = 0; sent.ok() && i < 1000; ++i)
      sent = ends->first.Send(message, -1, base::SystemClock().Now());
    QCOMPARE(sent.code(), absl::StatusCode::kDeadlineExceeded);
  }

  void Refused_TooLarge_AndNoMessage() {
    auto ends = PacketSocket::Pair();
    QVERIFY(ends.ok());
    v1::ToWorker message;
    message.mutable_load()->set_model_dir(std::string(PacketSocket::kMaxBytes, 'm'));
    QCOMPARE(Reason(ends->first.Send(message, -1, Soon())), std::string("TOO_LARGE"));
    QCOMPARE(::write(ends->first.fd(), "\xff\xff\xff", 3), ssize_t{3});
    QCOMPARE(Reason(ends->second.Receive(message, Soon()).status()), std::string("BAD_PACKET"));
  }
};

}  // namespace onepiece::worker

ONEPIECE_TEST(onepiece::worker::PacketSocketTest)
#include "packet_socket_test.moc"
