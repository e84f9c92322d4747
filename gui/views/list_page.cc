#include "gui/views/list_page.h"

#include <QEvent>
#include <QVBoxLayout>

#include "gui/views/tone.h"

namespace onepiece::gui {

ListPage::ListPage(const QString& id, const QString& title, ShownCluster& shown_cluster,
                   QWidget* parent)
    : View(id, title, shown_cluster, parent),
      head_(new QHBoxLayout),
      headline_(new QLabel(this)),
      note_(new QLabel(this)) {
  headline_->setObjectName(id + QStringLiteral(".headline"));
  note_->setObjectName(id + QStringLiteral(".note"));
  for (QLabel* label : {headline_, note_}) {
    label->setWordWrap(true);
    label->setTextFormat(Qt::PlainText);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  }
  QFont bold = headline_->font();
  bold.setBold(true);
  headline_->setFont(bold);
  note_->hide();
  head_->addWidget(headline_, 1);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(head_);
  layout->addWidget(note_);
}

ListPage::~ListPage() = default;

void ListPage::SetModel(QAbstractItemModel* model) {
  panel_ = new TablePanel(title(), model, this);
  panel_->FitColumns();
  layout()->addWidget(panel_);
  connect(panel_, &TablePanel::ClearWanted, this, &View::ClearFilterWanted);
}

void ListPage::Focus(const QString& entity) {
  if (!panel_->Select(entity.section(u'/', 1)) && !entity.isEmpty()) {
    Q_EMIT Told(tr("%1 is not in this list, or the filter hides it.")
                    .arg(SafeText(entity.toStdString(), 80)));
  }
}

void ListPage::Say(const QString& headline, StatusTone tone, const QString& note) {
  const QString text = tone == StatusTone::kNeutral ? headline : ToneGlyph(tone) + u' ' + headline;
  if (headline_->text() != text) headline_->setText(text);
  if (tone != tone_) {
    tone_ = tone;
    Colour();
  }
  if (note_->text() != note) note_->setText(note);
  note_->setVisible(!note.isEmpty());
}

void ListPage::Colour() {
  QPalette colours = palette();
  if (tone_ != StatusTone::kNeutral) {
    colours.setColor(QPalette::WindowText, ToneColor(tone_, colours));
  }
  headline_->setPalette(colours);
}

void ListPage::changeEvent(QEvent* event) {
  View::changeEvent(event);
  if (event->type() == QEvent::PaletteChange) Colour();
}

}  // namespace onepiece::gui
