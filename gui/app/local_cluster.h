// The embedded cluster behind "Try a local cluster". It has a data directory of its own.
// `onepiece up` and `onepiece down` start and end it.
//
// Ownership: it ends what it has started, in Stop() or in the destructor.
// Threading: GUI thread only.
// Blocking: no call blocks. The destructor waits at most a second, and only if `up` or `down` still
// runs.
#pragma once

#include <QObject>
#include <QProcess>
#include <QString>

namespace onepiece::gui {

/// Starts and ends one embedded cluster.
class LocalCluster : public QObject {
  Q_OBJECT
 public:
  /// The cluster keeps its files in `data_dir`.
  explicit LocalCluster(QString data_dir, QObject* parent = nullptr);
  ~LocalCluster() override;

  enum class State { kStopped, kStarting, kRunning, kStopping };
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const QString& data_dir() const { return data_dir_; }
  void Start();
  void Stop();

 Q_SIGNALS:
  void StateChanged();
  /// A line that the program prints while it runs: "proxy-1 is ready".
  void Progressed(const QString& line);
  /// The cluster takes jobs.
  void Ready();
  void Failed(const QString& why);

 private:
  void Run(const QString& verb);
  void Ended(int exit_code);
  void SetState(State state);

  QString data_dir_, program_, said_;
  State state_ = State::kStopped;
  QProcess process_;
};

}  // namespace onepiece::gui
