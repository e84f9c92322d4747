#include "tests/rdma_vm/exchange.h"

#include <QDataStream>
#include <QTcpSocket>
#include <memory>

#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::rdma_vm {
namespace {

constexpr quint16 kPort = 7700;
constexpr int kPatienceMs = 10'000;

void Send(QTcpSocket& socket, std::string_view text) {
  QDataStream stream(&socket);
  stream << QByteArray(text.data(), static_cast<qsizetype>(text.size()));
  socket.waitForBytesWritten(kPatienceMs);
}

bool Receive(QTcpSocket& socket, std::string& text) {
  QDataStream stream(&socket);
  QByteArray bytes;
  while (true) {
    stream.startTransaction();
    stream >> bytes;
    if (stream.commitTransaction()) break;
    if (!socket.waitForReadyRead(kPatienceMs)) return false;
  }
  text = bytes.toStdString();
  return true;
}

int Milliseconds(base::Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

absl::StatusOr<std::string> Ask(const std::string& address, std::string_view question,
                                base::Duration limit) {
  const auto until = base::SystemClock().Now() + limit;
  do {
    QTcpSocket socket;
    socket.connectToHost(QString::fromStdString(address), kPort);
    std::string text;
    if (!socket.waitForConnected(1000)) continue;
    Send(socket, question);
    if (Receive(socket, text)) return text;
  } while (base::SystemClock().Now() < until);
  return base::MakeError(absl::StatusCode::kUnavailable, "NO_ANSWER", address + " does not answer");
}

Answerer::Answerer() { ONEPIECE_CHECK(server_.listen(QHostAddress::Any, kPort)); }

bool Answerer::AnswerOne(const std::function<std::string(std::string_view)>& answer,
                         base::Duration limit) {
  if (!server_.hasPendingConnections()) server_.waitForNewConnection(Milliseconds(limit));
  const std::unique_ptr<QTcpSocket> socket(server_.nextPendingConnection());
  std::string question;
  if (socket == nullptr || !Receive(*socket, question)) return false;
  Send(*socket, answer(question));
  socket->disconnectFromHost();
  if (socket->state() != QAbstractSocket::UnconnectedState) {
    socket->waitForDisconnected(kPatienceMs);
  }
  return true;
}

}  // namespace onepiece::rdma_vm
