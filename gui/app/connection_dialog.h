// The dialog that edits one cluster: its name, its addresses, and how the console logs in there.
//
// Threading: GUI thread only.
#pragma once

#include <QCheckBox>
#include <QComboBox>
#include <QDialog>
#include <QDialogButtonBox>
#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <string>
#include <vector>

#include "gui/app/connection.h"

namespace onepiece::gui {

/// Splits a text into addresses of the form "host:port", separated by commas or white space. If one
/// is not an address, the answer is empty and `why`, if not null, says the reason.
std::vector<std::string> ParseAddresses(const QString& text, QString* why);

/// Edits one cluster. A token that is pasted goes into a file of its own, which only its owner
/// reads, and never into the settings.
class ConnectionDialog : public QDialog {
  Q_OBJECT
 public:
  /// `taken` are the names of other clusters.
  ConnectionDialog(Connection connection, std::vector<std::string> taken, std::string contexts_path,
                   QWidget* parent);
  /// The connection as edited.
  [[nodiscard]] const Connection& connection() const { return connection_; }

  /// Looks at the files that were named, and keeps the token. The dialog stays open and says what
  /// is wrong with them.
  void accept() override;

 private:
  /// In the order of the box.
  enum Login { kCertificate, kToken, kNone };

  void AddFile(QFormLayout* form, const QString& title, QLineEdit* edit, bool folder);
  void LayOut();
  void ShowLogin();
  void Check();
  [[nodiscard]] QString Missing() const;
  /// Writes a pasted token to a new file.
  [[nodiscard]] absl::StatusOr<contexts::Credentials> ReadLogin() const;

  Connection connection_;
  const std::vector<std::string> taken_;
  const std::string contexts_path_;
  QLineEdit *name_, *addresses_, *folder_, *token_, *token_file_, *authorities_;
  QComboBox* login_;
  QCheckBox* production_;
  QLabel* why_;
  QDialogButtonBox* buttons_;
  QFormLayout* form_;
};

}  // namespace onepiece::gui
