#include "gui/app/local_cluster.h"

#include <utility>

#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "gui/models/format.h"

namespace onepiece::gui {

LocalCluster::LocalCluster(QString data_dir, QObject* parent)
    : QObject(parent), data_dir_(std::move(data_dir)) {
  process_.setProcessChannelMode(QProcess::MergedChannels);
  process_.setStandardInputFile(QProcess::nullDevice());
  connect(&process_, &QProcess::readyRead, this, [this] {
    while (process_.canReadLine()) {
      const QByteArray line = process_.readLine().trimmed();
      said_ = SafeText(std::string_view(line.constData(), static_cast<std::size_t>(line.size())));
      Q_EMIT Progressed(said_);
    }
  });
  connect(&process_, &QProcess::finished, this, &LocalCluster::Ended);
  connect(&process_, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
    if (error != QProcess::FailedToStart) return;
    SetState(state_ == State::kStopping ? State::kRunning : State::kStopped);
    Q_EMIT Failed(tr("%1 cannot be started: %2").arg(program_, process_.errorString()));
  });
}

LocalCluster::~LocalCluster() {
  // waitForFinished() emits finished(), and Ended() must not run on an object that is being
  // destroyed.
  process_.disconnect(this);
  if (state_ == State::kStopped) return;
  // If the cluster is still starting, `down` waits until that program has ended.
  QProcess::startDetached(program_,
                          {QStringLiteral("down"), QStringLiteral("--data-dir"), data_dir_});
  if (process_.state() != QProcess::NotRunning) {
    process_.terminate();
    process_.waitForFinished(1000);
  }
}

void LocalCluster::Start() {
  if (state_ != State::kStopped) return;
  const auto program = local::ProgramPath("onepiece");
  if (!program.ok()) {
    Q_EMIT Failed(SafeText(base::Message(program.status())));
    return;
  }
  program_ = QString::fromStdString(*program);
  SetState(State::kStarting);
  Run(QStringLiteral("up"));
}

void LocalCluster::Stop() {
  if (state_ != State::kRunning) return;
  SetState(State::kStopping);
  Run(QStringLiteral("down"));
}

void LocalCluster::Run(const QString& verb) {
  said_.clear();
  process_.start(program_, {verb, QStringLiteral("--data-dir"), data_dir_});
}

void LocalCluster::Ended(int exit_code) {
  const bool started = state_ == State::kStarting;
  // Exit code 4 means that a cluster runs there already. A console that was killed has started it,
  // so it is ours.
  constexpr int kAlreadyRunning = 4;
  const bool well = process_.exitStatus() == QProcess::NormalExit &&
                    (exit_code == 0 || (started && exit_code == kAlreadyRunning));
  // A cluster that could not be stopped still runs, and Stop() may be tried again.
  SetState(started == well ? State::kRunning : State::kStopped);
  if (!well) {
    Q_EMIT Failed(said_.isEmpty() ? tr("The program ended with %1").arg(exit_code) : said_);
  } else if (started) {
    Q_EMIT Ready();
  }
}

void LocalCluster::SetState(State state) {
  if (state == state_) return;
  state_ = state;
  Q_EMIT StateChanged();
}

}  // namespace onepiece::gui
