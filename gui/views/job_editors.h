// The editors of the submit dialog, for parameters and files.
//
// Threading: GUI thread only.
#pragma once

#include <QFrame>
#include <QLabel>
#include <QPushButton>
#include <QThreadPool>
#include <QWidget>
#include <string>

#include "gui/models/job_form.h"

namespace onepiece::gui {

/// One parameter: its name, an editor for its type, its description, and what is wrong with its
/// value.
class ParameterEditor : public QWidget {
  Q_OBJECT
 public:
  /// Shows `text`. If the editor cannot show it, text() differs from it.
  ParameterEditor(const v1::ParameterSpec& spec, const std::string& text, QWidget* parent);

  /// Shows what is wrong with the value. Empty if nothing is.
  void ShowProblem(const QString& why);
  [[nodiscard]] QWidget* editor() const { return editor_; }
  /// The value as the editor shows it.
  [[nodiscard]] std::string text() const;

 Q_SIGNALS:
  void Changed(const std::string& text);

 private:
  QWidget* MakeEditor(const v1::ParameterSpec& spec, const std::string& text);

  EditorKind kind_;
  QWidget* editor_;
  QLabel* problem_;
};

/// One file. It is chosen or dropped, read off the GUI thread, and shown if it is a picture.
class InputEditor : public QFrame {
  Q_OBJECT
 public:
  InputEditor(const v1::InputSpec& spec, QWidget* parent);
  ~InputEditor() override;

  /// Shows a file that has been read already.
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
  QThreadPool worker_;  ///< One thread. Declared last, so that it ends before what it uses.
};

}  // namespace onepiece::gui
