// What parameters and files of a job are asked for with.
//
// Threading  GUI thread only.
#pragma once

#include <QFrame>
#include <QLabel>
#include <QPushButton>
#include <QThreadPool>
#include <QWidget>
#include <string>

#include "gui/models/job_form.h"

namespace onepiece::gui {

/// One parameter: its name, an editor of its type, what it is, and what is wrong with it.
class ParameterEditor : public QWidget {
  Q_OBJECT
 public:
  /// Shows `text`; Changed follows at once where the editor cannot show it.
  ParameterEditor(const v1::ParameterSpec& spec, const std::string& text, QWidget* parent);

  /// Empty: nothing is wrong.
  void ShowProblem(const QString& why);
  [[nodiscard]] QWidget* editor() const { return editor_; }
  /// As it is shown.
  [[nodiscard]] std::string text() const;

 Q_SIGNALS:
  void Changed(const std::string& text);

 private:
  QWidget* MakeEditor(const v1::ParameterSpec& spec, const std::string& text);

  EditorKind kind_;
  QWidget* editor_;
  QLabel* problem_;
};

/// One file: chosen or dropped, read off the GUI thread, with a picture of it where it is one.
class InputEditor : public QFrame {
  Q_OBJECT
 public:
  InputEditor(const v1::InputSpec& spec, QWidget* parent);
  ~InputEditor() override;

  /// Shows a file that was read before.
  void Show(const InputFile& file);
  void ShowProblem(const QString& why);
  void Read(const QString& path);

 Q_SIGNALS:
  void Chosen(const InputFile& file);
  void Removed();

 protected:
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;

 private:
  void Choose();
  void Clear();
  void Taken(absl::StatusOr<InputFile> file, const QImage& picture, const QString& trouble);

  v1::InputSpec spec_;
  QLabel *picture_, *words_, *problem_;
  QPushButton* remove_;
  int reading_ = 0;     ///< Number of the file that was asked for last.
  QThreadPool worker_;  ///< One thread; last: it ends before what it uses.
};

}  // namespace onepiece::gui
