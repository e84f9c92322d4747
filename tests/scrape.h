// Reads a Prometheus endpoint, for tests of metrics.
#pragma once

#include <QByteArray>
#include <QTcpSocket>
#include <string>

namespace onepiece::testing {

/// Returns the body of GET /metrics, or an empty text when there is no answer within 20 s.
inline QByteArray Scrape(const std::string& address) {
  constexpr int kWaitMs = 20'000;
  const auto colon = address.rfind(':');
  QTcpSocket socket;
  const auto port = static_cast<quint16>(std::stoi(address.substr(colon + 1)));
  socket.connectToHost(QString::fromStdString(address.substr(0, colon)), port);
  if (!socket.waitForConnected(kWaitMs)) return {};
  socket.write("GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n");
  QByteArray answer;
  while (socket.state() == QAbstractSocket::ConnectedState && socket.waitForReadyRead(kWaitMs)) {
    answer += socket.readAll();
  }
  answer += socket.readAll();
  return answer.mid(answer.indexOf("\r\n\r\n") + 4);
}

}  // namespace onepiece::testing
