// "Try a local cluster": an embedded cluster with a data directory of the console's own, started
// and ended by the command line program.
//
// Ownership  What it has started it ends: Stop, or the destructor (which does not wait).
// Threading  GUI thread only; nothing blocks.
#pragma once

#include <QObject>
#include <QProcess>
#include <QString>

namespace onepiece::gui {

class LocalCluster : public QObject {
  Q_OBJECT
 public:
  /// `data_dir`: where the cluster keeps its files.
  explicit LocalCluster(QString data_dir, QObject* parent = nullptr);
  ~LocalCluster() override;

  enum class State { kStopped, kStarting, kRunning, kStopping };
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const QString& data_dir() const { return data_dir_; }
  void Start();
  void Stop();

 Q_SIGNALS:
  void StateChanged();
  /// What the program says while it starts: "proxy-1 is ready".
  void Progressed(const QString& line);
  /// It takes jobs.
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
