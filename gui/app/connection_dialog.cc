#include "gui/app/connection_dialog.h"

#include <QFileDialog>
#include <QHBoxLayout>
#include <QPushButton>
#include <QRegularExpression>
#include <algorithm>
#include <filesystem>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/identity/identity_folder.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// The place of the login's rows in the form.
constexpr int kFolderRow = 3, kTokenRow = 4, kTokenFileRow = 5, kAuthoritiesRow = 6;

QLineEdit* Edit(const std::string& text, const char* name, QWidget* parent) {
  auto* edit = new QLineEdit(QString::fromStdString(text), parent);
  edit->setObjectName(QLatin1String(name));
  return edit;
}

std::string TextOf(const QLineEdit* edit) { return edit->text().trimmed().toStdString(); }

/// The console may run elsewhere the next time.
std::string PathOf(const QLineEdit* edit) {
  const std::string text = TextOf(edit);
  return text.empty() ? text : std::filesystem::absolute(text).lexically_normal().string();
}

}  // namespace

std::vector<std::string> ParseAddresses(const QString& text, QString* why) {
  std::vector<std::string> addresses;
  const auto refuse = [&](const QString& reason) {
    if (why != nullptr) *why = reason;
    return std::vector<std::string>{};
  };
  static const QRegularExpression separators(QStringLiteral("[,\\s]+"));
  for (const QString& part : text.split(separators, Qt::SkipEmptyParts)) {
    const qsizetype colon = part.lastIndexOf(u':');
    bool number = false;
    const int port = part.mid(colon + 1).toInt(&number);
    if (colon <= 0 || !number || port < 1 || port > 65535) {
      return refuse(QObject::tr("“%1” is no host:port.").arg(SafeText(part.toStdString(), 40)));
    }
    addresses.push_back(part.toStdString());
  }
  if (addresses.empty())
    return refuse(QObject::tr("The address of at least one NodeManager, host:port."));
  return addresses;
}

ConnectionDialog::ConnectionDialog(Connection connection, std::vector<std::string> taken,
                                   std::string contexts_path, QWidget* parent)
    : QDialog(parent),
      connection_(std::move(connection)),
      taken_(std::move(taken)),
      contexts_path_(std::move(contexts_path)),
      name_(Edit(connection_.cluster.name, "name", this)),
      addresses_(Edit({}, "nodemanagers", this)),
      folder_(Edit(connection_.credentials.folder, "folder", this)),
      token_(Edit({}, "token", this)),
      token_file_(Edit(connection_.credentials.token_file, "token_file", this)),
      authorities_(Edit(connection_.credentials.authorities, "ca", this)),
      login_(new QComboBox(this)),
      production_(new QCheckBox(
          tr("Production: show a red band, and ask for the name before risky changes"), this)),
      why_(new QLabel(this)),
      buttons_(new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel, this)),
      form_(new QFormLayout(this)) {
  setObjectName(QStringLiteral("connection"));
  setWindowTitle(tr("Cluster"));
  QStringList texts;
  for (const std::string& address : connection_.cluster.nodemanagers)
    texts << QString::fromStdString(address);
  addresses_->setText(texts.join(QStringLiteral(", ")));
  addresses_->setPlaceholderText(QStringLiteral("host:port, host:port"));
  login_->setObjectName(QStringLiteral("login"));
  login_->addItems({tr("Certificate"), tr("Token"), tr("None: the cluster is not secure")});
  const contexts::Credentials& credentials = connection_.credentials;
  login_->setCurrentIndex(!credentials.token_file.empty() ? kToken
                          : credentials.folder.empty() && !connection_.cluster.name.empty()
                              ? kNone
                              : kCertificate);
  folder_->setPlaceholderText(tr("Folder with NAME.pem, NAME.key and ca.pem"));
  token_->setEchoMode(QLineEdit::Password);
  token_->setPlaceholderText(
      credentials.token_file.empty()
          ? tr("Paste it here: OPB1…")
          : tr("Paste another one, or leave it empty to keep that of the file"));
  token_file_->setPlaceholderText(tr("Or a file that has it, mode 0600"));
  authorities_->setPlaceholderText(tr("ca.pem of the cluster, from its admin"));
  production_->setChecked(connection_.cluster.production);
  LayOut();
  connect(buttons_, &QDialogButtonBox::accepted, this, &QDialog::accept);
  connect(buttons_, &QDialogButtonBox::rejected, this, &QDialog::reject);
  connect(login_, &QComboBox::currentIndexChanged, this, &ConnectionDialog::ShowLogin);
  for (const QLineEdit* edit : {name_, addresses_, folder_, token_, token_file_, authorities_})
    connect(edit, &QLineEdit::textChanged, this, &ConnectionDialog::Check);
  resize(fontMetrics().averageCharWidth() * 90, 0);
  ShowLogin();
}

void ConnectionDialog::AddFile(QFormLayout* form, const QString& title, QLineEdit* edit,
                               bool folder) {
  auto* row = new QWidget(this);
  auto* line = new QHBoxLayout(row);
  line->setContentsMargins(0, 0, 0, 0);
  auto* browse = new QPushButton(tr("Browse…"), row);
  browse->setAutoDefault(false);
  browse->setAccessibleName(tr("Browse for: %1").arg(title));
  edit->setAccessibleName(title);
  line->addWidget(edit, 1);
  line->addWidget(browse);
  form->addRow(title, row);
  connect(browse, &QPushButton::clicked, this, [this, title, edit, folder] {
    const QString path = folder ? QFileDialog::getExistingDirectory(this, title, edit->text())
                                : QFileDialog::getOpenFileName(this, title, edit->text());
    if (!path.isEmpty()) edit->setText(path);
  });
}

void ConnectionDialog::LayOut() {
  form_->addRow(tr("Name"), name_);
  form_->addRow(tr("NodeManagers"), addresses_);
  form_->addRow(tr("Login"), login_);
  AddFile(form_, tr("Identity"), folder_, true);
  form_->addRow(tr("Token"), token_);
  AddFile(form_, tr("Token's file"), token_file_, false);
  AddFile(form_, tr("CA"), authorities_, false);
  form_->addRow(production_);
  why_->setObjectName(QStringLiteral("why"));
  why_->setWordWrap(true);
  why_->setTextFormat(Qt::PlainText);
  form_->addRow(why_);
  form_->addRow(buttons_);
}

void ConnectionDialog::ShowLogin() {
  const int login = login_->currentIndex();
  form_->setRowVisible(kFolderRow, login == kCertificate);
  for (const int row : {kTokenRow, kTokenFileRow, kAuthoritiesRow})
    form_->setRowVisible(row, login == kToken);
  Check();
}

QString ConnectionDialog::Missing() const {
  if (TextOf(name_).empty()) return tr("A name, as people call the cluster.");
  if (std::ranges::find(taken_, TextOf(name_)) != taken_.end())
    return tr("There is a cluster of that name: choose another.");
  QString why;
  if (ParseAddresses(addresses_->text(), &why).empty()) return why;
  if (login_->currentIndex() == kCertificate && TextOf(folder_).empty())
    return tr(
        "The folder of your certificate, which `onepiece cert create-client` or the admin "
        "has made.");
  if (login_->currentIndex() != kToken) return {};
  if (TextOf(token_).empty() && TextOf(token_file_).empty())
    return tr("The token that `onepiece token create` has shown, or a file that has it.");
  if (TextOf(authorities_).empty())
    return tr("The cluster's CA: the console shows the token to no other server.");
  return {};
}

void ConnectionDialog::Check() {
  const QString missing = Missing();
  why_->setText(missing);
  buttons_->button(QDialogButtonBox::Ok)->setEnabled(missing.isEmpty());
}

absl::StatusOr<contexts::Credentials> ConnectionDialog::ReadLogin() const {
  const int login = login_->currentIndex();
  if (login == kNone) return IdentityIn({});
  if (login == kCertificate) {
    ONEPIECE_ASSIGN_OR_RETURN(const contexts::Credentials found,
                              contexts::FindIdentity(PathOf(folder_)));
    return IdentityIn(found.folder);
  }
  contexts::Credentials read = IdentityIn({});
  read.authorities = PathOf(authorities_);
  ONEPIECE_RETURN_IF_ERROR(identity::ReadTrustFile(read.authorities).status());
  if (const std::string token = TextOf(token_); !token.empty()) {
    read.token_file = NewTokenFile(contexts_path_);
    ONEPIECE_RETURN_IF_ERROR(contexts::KeepToken(read.token_file, token));
  } else {
    read.token_file = PathOf(token_file_);
    ONEPIECE_RETURN_IF_ERROR(contexts::ReadToken(read.token_file).status());
  }
  return read;
}

void ConnectionDialog::accept() {
  if (!Missing().isEmpty()) return;
  const auto read = ReadLogin();
  if (!read.ok()) {
    QString why = SafeText(base::Message(read.status()), 500);
    if (base::GetReason(read.status()).reason == "SEVERAL_IDENTITIES")
      why += tr(". `onepiece context add --identity-name NAME` takes one of them.");
    return why_->setText(why);
  }
  if (read->token_file != connection_.credentials.token_file)
    ForgetToken(contexts_path_, connection_);
  connection_.credentials = *read;
  connection_.cluster = {.name = TextOf(name_),
                         .nodemanagers = ParseAddresses(addresses_->text(), nullptr),
                         .production = production_->isChecked()};
  token_->clear();
  QDialog::accept();
}

}  // namespace onepiece::gui
