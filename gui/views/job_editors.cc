#include "gui/views/job_editors.h"

#include <QCheckBox>
#include <QComboBox>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QLineEdit>
#include <QMimeData>
#include <QPlainTextEdit>
#include <QSpinBox>
#include <QVBoxLayout>
#include <algorithm>
#include <span>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/media/image.h"
#include "gui/models/format.h"
#include "gui/views/plain_label.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr int kPictureSide = 96;
/// The size limit of an input whose schema gives none (proto InputSpec).
constexpr std::int64_t kDefaultBytes = std::int64_t{32} << 20;

QLabel* MakeProblem(QWidget* parent) {
  QLabel* label = PlainLabel(parent);
  label->setObjectName(QStringLiteral("problem"));
  label->hide();
  return label;
}

void SetProblem(QLabel* label, const QString& why) {
  if (why.isEmpty()) {
    label->hide();
    return;
  }
  QPalette palette = label->palette();
  palette.setColor(QPalette::WindowText,
                   ToneColor(StatusTone::kBad, label->parentWidget()->palette()));
  label->setPalette(palette);
  label->setText(ToneGlyph(StatusTone::kBad) + u' ' + why);
  label->show();
}

/// The name of a parameter in bold. A required one has an asterisk.
QLabel* MakeName(QWidget* parent, const std::string& name, bool required) {
  QLabel* label =
      PlainLabel(parent, SafeText(name, 63) + (required ? QStringLiteral(" *") : QString()));
  QFont bold = label->font();
  bold.setBold(true);
  label->setFont(bold);
  return label;
}

int ToInt(const std::string& text) {
  return static_cast<int>(QString::fromStdString(text).toDouble());
}

}  // namespace

ParameterEditor::ParameterEditor(const v1::ParameterSpec& spec, const std::string& text,
                                 QWidget* parent)
    : QWidget(parent), kind_(EditorOf(spec)), editor_(nullptr), problem_(MakeProblem(this)) {
  QLabel* name = MakeName(this, spec.name(), spec.required());
  editor_ = MakeEditor(spec, text);
  editor_->setObjectName(QStringLiteral("parameter.%1").arg(QString::fromStdString(spec.name())));
  editor_->setAccessibleName(SafeText(spec.name(), 63));
  name->setBuddy(editor_);
  QStringList hints = {SafeText(spec.description(), 300), RangeText(spec)};
  hints.removeAll(QString());
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 4);
  layout->setSpacing(2);
  if (kind_ != EditorKind::kCheck) layout->addWidget(name);
  name->setVisible(kind_ != EditorKind::kCheck);
  layout->addWidget(editor_);
  if (!hints.isEmpty()) {
    QLabel* hint = PlainLabel(this, hints.join(QStringLiteral(" · ")));
    hint->setForegroundRole(QPalette::PlaceholderText);
    editor_->setAccessibleDescription(hint->text());
    layout->addWidget(hint);
  }
  layout->addWidget(problem_);
}

QWidget* ParameterEditor::MakeEditor(const v1::ParameterSpec& spec, const std::string& text) {
  const QString shown = QString::fromStdString(text);
  const auto tell = [this] { Q_EMIT Changed(this->text()); };
  switch (kind_) {
    case EditorKind::kCheck: {
      auto* box = new QCheckBox(SafeText(spec.name(), 63), this);
      box->setChecked(text == "true");
      connect(box, &QCheckBox::toggled, this, tell);
      return box;
    }
    case EditorKind::kChoice: {
      auto* box = new QComboBox(this);
      for (const std::string& value : spec.allowed_values())
        box->addItem(SafeText(value, 100), QString::fromStdString(value));
      box->setCurrentIndex(box->findData(shown));
      connect(box, &QComboBox::currentIndexChanged, this, tell);
      return box;
    }
    case EditorKind::kInteger: {
      auto* box = new QSpinBox(this);
      box->setRange(static_cast<int>(spec.minimum()), static_cast<int>(spec.maximum()));
      box->setSingleStep(
          static_cast<int>(std::clamp<std::int64_t>(spec.multiple_of(), 1, 1 << 20)));
      box->setValue(ToInt(text));
      connect(box, &QSpinBox::valueChanged, this, tell);
      return box;
    }
    case EditorKind::kText: {
      auto* edit = new QPlainTextEdit(shown, this);
      edit->setTabChangesFocus(true);
      edit->setFixedHeight(edit->fontMetrics().lineSpacing() * 3 + 14);
      connect(edit, &QPlainTextEdit::textChanged, this, tell);
      return edit;
    }
    case EditorKind::kNumber:
    case EditorKind::kLine:
      break;
  }
  auto* edit = new QLineEdit(shown, this);
  connect(edit, &QLineEdit::textChanged, this, tell);
  return edit;
}

std::string ParameterEditor::text() const {
  switch (kind_) {
    case EditorKind::kCheck:
      return static_cast<QCheckBox*>(editor_)->isChecked() ? "true" : "false";
    case EditorKind::kChoice:
      return static_cast<QComboBox*>(editor_)->currentData().toString().toStdString();
    case EditorKind::kInteger:
      return std::to_string(static_cast<QSpinBox*>(editor_)->value());
    case EditorKind::kText:
      return static_cast<QPlainTextEdit*>(editor_)->toPlainText().toStdString();
    case EditorKind::kNumber:
    case EditorKind::kLine:
      break;
  }
  return static_cast<QLineEdit*>(editor_)->text().toStdString();
}

void ParameterEditor::ShowProblem(const QString& why) { SetProblem(problem_, why); }

InputEditor::InputEditor(const v1::InputSpec& spec, QWidget* parent)
    : QFrame(parent),
      spec_(spec),
      picture_(new QLabel(this)),
      words_(PlainLabel(this)),
      problem_(MakeProblem(this)),
      remove_(new QPushButton(tr("Remove"), this)) {
  worker_.setMaxThreadCount(1);
  setFrameShape(QFrame::StyledPanel);
  setAcceptDrops(true);
  setObjectName(QStringLiteral("input.%1").arg(QString::fromStdString(spec.name())));
  picture_->setFixedSize(kPictureSide, kPictureSide);
  picture_->setAlignment(Qt::AlignCenter);
  picture_->setAccessibleName(tr("Picture of the file"));
  auto* choose = new QPushButton(tr("Choose a file…"), this);
  choose->setObjectName(QStringLiteral("choose"));
  choose->setAccessibleName(tr("Choose a file for %1").arg(SafeText(spec.name(), 63)));
  remove_->setAccessibleName(tr("Remove the file of %1").arg(SafeText(spec.name(), 63)));
  QStringList hints = {SafeText(spec.description(), 300)};
  for (const std::string& type : spec.media_types()) hints.append(SafeText(type, 60));
  hints.append(tr("at most %1")
                   .arg(FormatBytes(static_cast<double>(spec.max_bytes() > 0 ? spec.max_bytes()
                                                                             : kDefaultBytes))));
  hints.removeAll(QString());
  QLabel* hint = PlainLabel(this, hints.join(QStringLiteral(" · ")));
  hint->setForegroundRole(QPalette::PlaceholderText);
  auto* buttons = new QHBoxLayout;
  buttons->addWidget(choose);
  buttons->addWidget(remove_);
  buttons->addStretch(1);
  auto* right = new QVBoxLayout;
  right->addWidget(MakeName(this, spec.name(), spec.required()));
  right->addWidget(words_);
  right->addWidget(hint);
  right->addWidget(problem_);
  right->addLayout(buttons);
  auto* layout = new QHBoxLayout(this);
  layout->addWidget(picture_, 0, Qt::AlignTop);
  layout->addLayout(right, 1);
  connect(choose, &QPushButton::clicked, this, &InputEditor::Choose);
  connect(remove_, &QPushButton::clicked, this, [this] {
    Clear();
    Q_EMIT Removed();
  });
  Clear();
}

InputEditor::~InputEditor() = default;

void InputEditor::Clear() {
  ++reading_;
  picture_->setPixmap({});
  picture_->setText(tr("drop a\nfile here"));
  words_->setText(tr("No file."));
  remove_->setEnabled(false);
}

void InputEditor::Show(const InputFile& file) { Taken(file, {}, {}); }

void InputEditor::ShowProblem(const QString& why) { SetProblem(problem_, why); }

void InputEditor::Choose() {
  auto* dialog = new QFileDialog(this, tr("Choose a file for %1").arg(SafeText(spec_.name(), 63)));
  dialog->setFileMode(QFileDialog::ExistingFile);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  connect(dialog, &QFileDialog::fileSelected, this, &InputEditor::Read);
  dialog->open();
}

void InputEditor::Read(const QString& path) {
  const int number = ++reading_;
  words_->setText(tr("Reading %1…").arg(SafeText(path.toStdString(), 200)));
  const std::int64_t most = spec_.max_bytes() > 0 ? spec_.max_bytes() : kDefaultBytes;
  worker_.start([this, number, most, path = path.toStdString()] {
    auto file = ReadInputFile(path, most);
    QImage picture;
    QString trouble;
    if (file.ok() && file->media_type.starts_with("image/")) {
      const auto decoded = media::DecodeImage(std::as_bytes(std::span(*file->bytes)));
      if (decoded.ok()) {
        picture = QImage(reinterpret_cast<const uchar*>(decoded->rgb.data()),
                         static_cast<int>(decoded->width), static_cast<int>(decoded->height),
                         static_cast<qsizetype>(decoded->width * 3), QImage::Format_RGB888)
                      .copy();
      } else {
        trouble = SafeText(base::Message(decoded.status()), 200);
      }
    }
    QMetaObject::invokeMethod(
        this,
        [this, number, file = std::move(file), picture, trouble]() mutable {
          if (number != reading_) return;  // Another file was chosen meanwhile.
          const bool ok = file.ok();
          Taken(file, picture, trouble);
          if (ok) Q_EMIT Chosen(*file);
        },
        Qt::QueuedConnection);
  });
}

void InputEditor::Taken(absl::StatusOr<InputFile> file, const QImage& picture,
                        const QString& trouble) {
  if (!file.ok()) {
    Clear();
    words_->setText(SafeText(base::Message(file.status()), 400));
    Q_EMIT Removed();
    return;
  }
  remove_->setEnabled(true);
  const QString name = QString::fromStdString(file->path).section(u'/', -1);
  QStringList words = {SafeText(name.toStdString(), 120),
                       FormatBytes(static_cast<double>(file->bytes->size())),
                       SafeText(file->media_type, 60)};
  if (!picture.isNull()) {
    words.append(tr("%1 × %2 pixels").arg(picture.width()).arg(picture.height()));
    picture_->setPixmap(QPixmap::fromImage(
        picture.scaled(kPictureSide, kPictureSide, Qt::KeepAspectRatio, Qt::SmoothTransformation)));
  } else {
    picture_->setText(tr("no picture"));
  }
  QString text = words.join(QStringLiteral(" · "));
  if (!trouble.isEmpty()) text += u'\n' + tr("▲ It cannot be decoded here: %1").arg(trouble);
  words_->setText(text);
}

void InputEditor::dragEnterEvent(QDragEnterEvent* event) {
  const QList<QUrl> urls = event->mimeData()->urls();
  if (urls.size() == 1 && urls.front().isLocalFile()) event->acceptProposedAction();
}

void InputEditor::dropEvent(QDropEvent* event) {
  const QList<QUrl> urls = event->mimeData()->urls();
  if (urls.size() != 1 || !urls.front().isLocalFile()) return;
  event->acceptProposedAction();
  Read(urls.front().toLocalFile());
}

}  // namespace onepiece::gui
