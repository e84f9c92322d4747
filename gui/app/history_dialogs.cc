#include "gui/app/history_dialogs.h"

#include <QComboBox>
#include <QDateTime>
#include <QDialogButtonBox>
#include <QFileDialog>
#include <QFormLayout>
#include <QLineEdit>
#include <QPushButton>
#include <QVBoxLayout>
#include <limits>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

using history::Difference;

StatusTone ToneOf(const Difference& difference) {
  if (difference.before == "unknown" || difference.after == "unknown") return StatusTone::kUnknown;
  if (difference.before.empty()) return StatusTone::kGood;
  return difference.after.empty() ? StatusTone::kWarning : StatusTone::kNeutral;
}

std::vector<KeyedTable<Difference>::Column> Columns() {
  using Row = Difference;
  const auto right = Qt::AlignRight | Qt::AlignVCenter;
  return {{QObject::tr("Entity"), {}, ShowCell([](const Row& row) {
             return TableCell{SafeText(row.entity, 80)};
           })},
          {QObject::tr("What"), {}, ShowCell([](const Row& row) {
             const StatusTone tone = ToneOf(row);
             const QString word = SafeText(row.what, 60);
             return TableCell{
                 tone == StatusTone::kNeutral ? word : ToneGlyph(tone) + u' ' + word, word,
                 tone == StatusTone::kNeutral ? QVariant() : QVariant(static_cast<int>(tone))};
           })},
          {QObject::tr("Pinned"), QObject::tr("Empty: it was not there. “unknown”: nobody knew"),
           ShowCell([](const Row& row) {
             return TableCell{SafeText(row.before, 200), {}, {}, SafeText(row.before, 400)};
           })},
          {QObject::tr("Shown"), QObject::tr("Empty: it is not there. “unknown”: nobody knows"),
           ShowCell([](const Row& row) {
             return TableCell{SafeText(row.after, 200), {}, {}, SafeText(row.after, 400)};
           })},
          {QObject::tr("Change"), QObject::tr("Shown less pinned, in the unit of both"),
           ShowCell([](const Row& row) {
             if (!row.change.has_value()) {
               return TableCell{QString(), std::numeric_limits<double>::quiet_NaN()};
             }
             const QString text = QString::number(*row.change, 'g', 4);
             return TableCell{*row.change > 0 ? u'+' + text : text, *row.change};
           }),
           right}};
}

QString KeyOf(const Difference& row) {
  return QString::fromStdString(row.entity) + u'\n' + QString::fromStdString(row.what);
}

bool Same(const Difference& a, const Difference& b) {
  return a.entity == b.entity && a.what == b.what && a.before == b.before && a.after == b.after;
}

}  // namespace

void AskBookmark(QWidget* parent, std::int64_t at_ms,
                 std::function<void(const QString& text)> yes) {
  auto* dialog = new QDialog(parent);
  dialog->setObjectName(QStringLiteral("bookmark"));
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setWindowTitle(QObject::tr("Bookmark"));
  auto* label =
      new QLabel(QObject::tr("What happened at %1?").arg(FormatTime(at_ms, at_ms)), dialog);
  auto* text = new QLineEdit(dialog);
  text->setObjectName(QStringLiteral("bookmark.text"));
  text->setMaxLength(200);
  text->setAccessibleName(QObject::tr("Text of the bookmark"));
  auto* buttons = new QDialogButtonBox(dialog);
  buttons->addButton(QObject::tr("Set the bookmark"), QDialogButtonBox::AcceptRole);
  buttons->addButton(QDialogButtonBox::Cancel);
  QObject::connect(buttons, &QDialogButtonBox::accepted, dialog, &QDialog::accept);
  QObject::connect(buttons, &QDialogButtonBox::rejected, dialog, &QDialog::reject);
  QObject::connect(dialog, &QDialog::accepted, dialog, [text, yes = std::move(yes)] {
    const QString said = text->text().trimmed();
    yes(said.isEmpty() ? QObject::tr("bookmark") : said);
  });
  auto* layout = new QVBoxLayout(dialog);
  layout->addWidget(label);
  layout->addWidget(text);
  layout->addWidget(buttons);
  dialog->setMinimumWidth(dialog->fontMetrics().averageCharWidth() * 60);
  dialog->open();
  text->setFocus();
}

void AskExport(QWidget* parent, history::Interval seen, history::Interval all,
               const QString& folder,
               std::function<void(history::Interval part, const QString& path)> yes) {
  auto* dialog = new QDialog(parent);
  dialog->setObjectName(QStringLiteral("export-range"));
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setWindowTitle(QObject::tr("Export a part of the recording"));
  auto* part = new QComboBox(dialog);
  part->setAccessibleName(QObject::tr("Which part"));
  std::vector<history::Interval> parts;
  const auto add = [&](const QString& title, history::Interval interval) {
    interval.from_ms = std::max(interval.from_ms, all.from_ms);
    interval.to_ms = std::min(interval.to_ms, all.to_ms);
    part->addItem(QObject::tr("%1: %2 to %3")
                      .arg(title, FormatTime(interval.from_ms, all.to_ms),
                           FormatTime(interval.to_ms, all.to_ms)));
    parts.push_back(interval);
  };
  add(QObject::tr("The last 15 minutes"), {all.to_ms - 15 * 60'000, all.to_ms});
  add(QObject::tr("The last hour"), {all.to_ms - 60 * 60'000, all.to_ms});
  add(QObject::tr("What the time line shows"), seen);
  add(QObject::tr("All of it"), all);
  auto* path = new QLineEdit(dialog);
  path->setObjectName(QStringLiteral("export-range.path"));
  path->setAccessibleName(QObject::tr("File"));
  path->setText(folder + u'/' +
                QDateTime::fromMSecsSinceEpoch(all.to_ms).toString(
                    QStringLiteral("'onepiece-'yyyyMMdd-HHmmss")) +
                QStringLiteral(".onepiece-recording"));
  auto* browse = new QPushButton(QObject::tr("Browse…"), dialog);
  QObject::connect(browse, &QPushButton::clicked, dialog, [dialog, path] {
    const QString chosen =
        QFileDialog::getSaveFileName(dialog, QObject::tr("Export a part of the recording"),
                                     path->text(), QObject::tr("Recordings (*.onepiece-recording)"),
                                     nullptr, QFileDialog::DontConfirmOverwrite);
    if (!chosen.isEmpty()) path->setText(chosen);
  });
  auto* file = new QHBoxLayout;
  file->addWidget(path, 1);
  file->addWidget(browse);
  auto* form = new QFormLayout;
  form->addRow(QObject::tr("Part"), part);
  form->addRow(QObject::tr("File"), file);
  auto* note = new QLabel(QObject::tr("One file, which “Open recording…” takes on any machine. It "
                                      "begins with the whole minute; no file is replaced."),
                          dialog);
  note->setWordWrap(true);
  auto* buttons = new QDialogButtonBox(dialog);
  buttons->addButton(QObject::tr("Export"), QDialogButtonBox::AcceptRole);
  buttons->addButton(QDialogButtonBox::Cancel);
  QObject::connect(buttons, &QDialogButtonBox::accepted, dialog, &QDialog::accept);
  QObject::connect(buttons, &QDialogButtonBox::rejected, dialog, &QDialog::reject);
  QObject::connect(dialog, &QDialog::accepted, dialog, [=, yes = std::move(yes)] {
    if (path->text().isEmpty()) return;
    yes(parts[static_cast<std::size_t>(part->currentIndex())], path->text());
  });
  auto* layout = new QVBoxLayout(dialog);
  layout->addLayout(form);
  layout->addWidget(note);
  layout->addWidget(buttons);
  dialog->setMinimumWidth(dialog->fontMetrics().averageCharWidth() * 90);
  dialog->open();
}

CompareDialog::CompareDialog(ShownCluster& shown_cluster, QWidget* parent)
    : QDialog(parent),
      shown_cluster_(shown_cluster),
      table_(std::make_unique<KeyedTable<Difference>>(Columns(), KeyOf)),
      head_(new QLabel(this)),
      panel_(new TablePanel(tr("Differences"), table_.get(), this)) {
  setObjectName(QStringLiteral("compare"));
  setWindowTitle(tr("Compare two instants"));
  setAttribute(Qt::WA_DeleteOnClose);
  head_->setWordWrap(true);
  head_->setTextFormat(Qt::PlainText);
  panel_->FitColumns(48);
  auto* filter = new QLineEdit(this);
  filter->setPlaceholderText(tr("Filter"));
  filter->setAccessibleName(tr("Filter of the differences"));
  filter->setClearButtonEnabled(true);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(head_);
  layout->addWidget(filter);
  layout->addWidget(panel_, 1);
  auto* close = new QDialogButtonBox(QDialogButtonBox::Close, this);
  layout->addWidget(close);
  connect(close, &QDialogButtonBox::rejected, this, &QDialog::reject);
  connect(filter, &QLineEdit::textChanged, panel_, &TablePanel::SetFilter);
  connect(panel_, &TablePanel::ClearWanted, filter, &QLineEdit::clear);
  connect(panel_, &TablePanel::Activated, this,
          [this](const QString& key) { Q_EMIT Opened(key.section(u'\n', 0, 0)); });
  look_.setInterval(1000);
  connect(&look_, &QTimer::timeout, this, &CompareDialog::Look);
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this, &CompareDialog::Look);
  look_.start();
  resize(fontMetrics().averageCharWidth() * 120, fontMetrics().height() * 30);
  Look();
}

void CompareDialog::Look() {
  const auto& from = shown_cluster_.pinned();
  const auto& to = shown_cluster_.snapshot();
  if (from == nullptr) {
    from_ = to_ = nullptr;
    head_->setText(tr("Nothing is pinned: “Pin this instant to compare with” first."));
    table_->Update({}, Same);
    return;
  }
  // The comparison runs elsewhere, one at a time. A change in between is seen at the next tick of
  // `look_`.
  if (looking_ || (from == from_ && to == to_)) return;
  from_ = from;
  to_ = to;
  looking_ = true;
  shown_cluster_.Work<std::vector<Difference>>(
      this,
      [from, to]() -> absl::StatusOr<std::vector<Difference>> {
        return history::Compare(*from, *to);
      },
      [this](absl::StatusOr<std::vector<Difference>> found) {
        looking_ = false;
        if (from_ == nullptr || !found.ok()) return;
        head_->setText(
            tr("Pinned %1, shown %2: %3 differences.")
                .arg(FormatTime(from_->at_ms, to_->at_ms), FormatTime(to_->at_ms, to_->at_ms))
                .arg(found->size()));
        panel_->SetEmptyText(tr("Nothing differs."));
        table_->Update(*std::move(found), Same);
      });
}

}  // namespace onepiece::gui
