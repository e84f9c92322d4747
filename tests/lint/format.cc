#include "tests/lint/format.h"

#include <QProcess>
#include <QRegularExpression>
#include <QThread>
#include <memory>
#include <vector>

namespace onepiece::lint {

QStringList FormatFindings(const QDir& top, const QStringList& paths) {
  // One process a core; each takes every n-th file.
  const int cores = QThread::idealThreadCount();
  std::vector<std::unique_ptr<QProcess>> processes;
  for (int core = 0; core < cores; ++core) {
    QStringList arguments = {"--dry-run", "-Werror", "--style=file"};
    for (qsizetype i = core; i < paths.size(); i += cores) arguments << paths[i];
    if (arguments.size() == 3) continue;  // Without a file, clang-format reads its standard input.
    auto process = std::make_unique<QProcess>();
    process->setWorkingDirectory(top.path());
    process->setProcessChannelMode(QProcess::MergedChannels);
    process->start("clang-format", arguments, QIODevice::ReadOnly);
    processes.push_back(std::move(process));
  }
  static const QRegularExpression error("^(\\S+:\\d+):\\d+: error: ");
  QStringList findings;
  for (const auto& process : processes) {
    if (!process->waitForFinished(-1)) {
      return {"clang-format does not run; install the packages of installers/packages.txt"};
    }
    const QString output = QString::fromUtf8(process->readAll());
    const qsizetype before = findings.size();
    for (const QString& line : output.split('\n')) {
      const auto match = error.match(line);
      if (!match.hasMatch()) continue;
      findings << match.captured(1) + ": not formatted; run clang-format -i on the file";
    }
    if (process->exitCode() != 0 && findings.size() == before) findings << output;
  }
  findings.removeDuplicates();
  findings.sort();
  return findings;
}

}  // namespace onepiece::lint
