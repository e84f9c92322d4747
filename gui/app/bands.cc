#include "gui/app/bands.h"

#include <QDateTime>
#include <QHBoxLayout>
#include <QPainter>
#include <QPainterPath>
#include <QStyle>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/models/format.h"
#include "gui/models/permissions.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

/// Below this rate nothing is said. Now and then an update is overtaken by a newer one because
/// several come at the same time.
constexpr std::uint64_t kDroppingPerSecond = 20;

StatusTone ToneOf(session::Link link) {
  switch (link) {
    case session::Link::kLive:
      return StatusTone::kGood;
    case session::Link::kConnecting:
    case session::Link::kReconnecting:
      return StatusTone::kBusy;
    case session::Link::kLagging:
      return StatusTone::kWarning;
    case session::Link::kStale:
    case session::Link::kAuthFailed:
    case session::Link::kVersionMismatch:
      return StatusTone::kBad;
    case session::Link::kOffline:
      return StatusTone::kNeutral;
  }
  return StatusTone::kUnknown;
}

void Paint(QWidget* widget, const BandColors& colors) {
  QPalette palette = widget->palette();
  palette.setColor(QPalette::Window, colors.ground);
  palette.setColor(QPalette::WindowText, colors.text);
  widget->setPalette(palette);
  widget->setAutoFillBackground(true);
}

/// A padlock. Drawn, because fonts differ in whether and how they show one.
QIcon LockIcon(const QColor& color, bool closed, int size, qreal ratio) {
  QPixmap picture(QSize(size, size) * ratio);
  picture.setDevicePixelRatio(ratio);
  picture.fill(Qt::transparent);
  QPainter painter(&picture);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.scale(size / 16.0, size / 16.0);
  // The shackle of an open one ends above the body.
  QPainterPath shackle(QPointF(4.5, 8));
  const double top = closed ? 1.5 : 0.9;
  shackle.lineTo(4.5, top + 3.5);
  shackle.arcTo(QRectF(4.5, top, 7, 7), 180, -180);
  shackle.lineTo(11.5, closed ? 8 : 5.4);
  painter.setPen(QPen(color, 1.8, Qt::SolidLine, Qt::FlatCap));
  painter.drawPath(shackle);
  painter.setPen(Qt::NoPen);
  painter.setBrush(color);
  painter.drawRoundedRect(QRectF(2.5, 7.5, 11, 7.5), 1.5, 1.5);
  return picture;
}

void SetTextIfNew(QLabel* label, const QString& text) {
  if (label->text() != text) label->setText(text);
}

}  // namespace

TopBand::TopBand(ShownCluster& shown_cluster, QWidget* parent)
    : QFrame(parent),
      shown_cluster_(shown_cluster),
      cluster_(new QLabel(this)),
      link_(new QLabel(this)),
      as_of_(new QLabel(this)),
      dropping_(new QLabel(this)),
      past_(new QLabel(this)),
      notice_(new QLabel(this)),
      filter_(new QLineEdit(this)),
      identity_(new QPushButton(this)),
      mode_(new QPushButton(this)),
      palette_(new QPushButton(tr("Commands"), this)),
      retry_(new QPushButton(tr("Retry now"), this)),
      switch_(new QPushButton(tr("Switch…"), this)),
      notice_row_(new QWidget(this)) {
  setObjectName(QStringLiteral("band"));
  cluster_->setObjectName(QStringLiteral("cluster"));
  link_->setObjectName(QStringLiteral("link"));
  past_->setObjectName(QStringLiteral("past"));
  dropping_->setObjectName(QStringLiteral("dropping"));
  dropping_->setToolTip(
      tr("Numbers come faster than they are drawn: the newest of each is shown, those between are "
         "not."));
  dropping_->hide();
  identity_->setObjectName(QStringLiteral("identity"));
  identity_->setFlat(true);
  identity_->hide();
  for (QLabel* label : {cluster_, link_, as_of_, dropping_, past_, notice_})
    label->setTextFormat(Qt::PlainText);
  QFont bold = cluster_->font();
  bold.setBold(true);
  cluster_->setFont(bold);
  cluster_->setMargin(4);
  filter_->setPlaceholderText(tr("Filter this page  (/)"));
  filter_->setAccessibleName(tr("Filter of the page that is shown"));
  filter_->setClearButtonEnabled(false);
  filter_->setMaximumWidth(fontMetrics().averageCharWidth() * 36);
  mode_->setCheckable(true);
  mode_->setObjectName(QStringLiteral("mode"));
  palette_->setToolTip(tr("Find a command, a page, a node or a job (Ctrl+K)"));
  LayOut();
  Connect();
  ages_.start(1000);
  Draw();
}

void TopBand::LayOut() {
  auto* row = new QHBoxLayout;
  row->setSpacing(12);
  for (QWidget* widget :
       std::initializer_list<QWidget*>{cluster_, identity_, link_, as_of_, dropping_})
    row->addWidget(widget);
  row->addStretch(1);
  row->addWidget(filter_, 2);
  row->addWidget(palette_);
  row->addWidget(mode_);
  past_->setMargin(5);
  past_->hide();
  Paint(past_, PastBand());
  notice_->setWordWrap(true);
  auto* notices = new QHBoxLayout(notice_row_);
  notices->setContentsMargins(4, 0, 0, 0);
  notices->addWidget(notice_, 1);
  notices->addWidget(retry_);
  notices->addWidget(switch_);
  notice_row_->hide();
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 4, 6, 4);
  layout->setSpacing(4);
  layout->addLayout(row);
  layout->addWidget(past_);
  layout->addWidget(notice_row_);
}

void TopBand::Connect() {
  connect(filter_, &QLineEdit::textChanged, this, &TopBand::FilterChanged);
  // Connected to toggled and not to clicked, because screen readers toggle the button without a
  // click. Draw() sets the button, too: then the mode is the same already, and nothing is asked
  // for.
  connect(mode_, &QPushButton::toggled, this, [this](bool checked) {
    if (checked != (shown_cluster_.mode() == ControlMode::kControl)) Q_EMIT ModeWanted();
  });
  connect(palette_, &QPushButton::clicked, this, &TopBand::PaletteWanted);
  connect(identity_, &QPushButton::clicked, this, &TopBand::IdentityWanted);
  connect(retry_, &QPushButton::clicked, this, &TopBand::RetryWanted);
  connect(switch_, &QPushButton::clicked, this, &TopBand::SwitchWanted);
  for (const auto signal :
       {&ShownCluster::Changed, &ShownCluster::LinkChanged, &ShownCluster::ModeChanged}) {
    connect(&shown_cluster_, signal, this, &TopBand::Draw);
  }
  connect(&ages_, &QTimer::timeout, this, &TopBand::Draw);
  connect(&ages_, &QTimer::timeout, this, &TopBand::CountDropped);
}

void TopBand::Draw() {
  const session::Snapshot& snapshot = *shown_cluster_.snapshot();
  const session::LinkStatus& link = shown_cluster_.link();
  const auto& session = shown_cluster_.session();
  const bool production = session != nullptr && session->target().production;
  QString name = session != nullptr                      ? SafeText(session->target().name, 40)
                 : shown_cluster_.recording() != nullptr ? tr("Recording")
                                                         : tr("No cluster");
  if (production) name = tr("PRODUCTION %1").arg(name);
  SetTextIfNew(cluster_, name);
  if (production) {
    Paint(cluster_, ProductionBand());
  } else {
    cluster_->setPalette(palette());
    cluster_->setAutoFillBackground(false);
  }
  const bool nothing =
      session == nullptr && shown_cluster_.recording() == nullptr && snapshot.at_ms == 0;
  const StatusTone tone = nothing ? StatusTone::kNeutral : ToneOf(link.link);
  const QString state =
      nothing ? tr("Not connected") : QString::fromStdString(session::LinkName(link.link));
  SetTextIfNew(link_, ToneGlyph(tone) + u' ' + state);
  QPalette colors = palette();
  colors.setColor(QPalette::WindowText, ToneColor(tone, colors));
  link_->setPalette(colors);
  link_->setToolTip(SafeTip(SafeText(link.detail)));
  SetTextIfNew(as_of_, snapshot.cluster.value == nullptr
                           ? QString()
                           : tr("as of %1, rev %2")
                                 .arg(FormatTime(snapshot.cluster.as_of_ms, snapshot.at_ms))
                                 .arg(snapshot.cluster.value->revision()));
  const bool control = shown_cluster_.mode() == ControlMode::kControl;
  mode_->setChecked(control);
  mode_->setText(control ? tr("▲ Control") : tr("Observe"));
  mode_->setAccessibleName(control ? tr("Control mode: lock") : tr("Observe mode: unlock"));
  mode_->setToolTip(control ? tr("Changes are possible. Lock again with Ctrl+Shift+U.")
                            : tr("Nothing can be changed. Unlock with Ctrl+Shift+U."));
  past_->setVisible(!shown_cluster_.live());
  if (!shown_cluster_.live()) {
    const std::int64_t now = QDateTime::currentMSecsSinceEpoch();
    SetTextIfNew(past_,
                 tr("Viewing %1, %2. Nothing can be changed. %3")
                     .arg(FormatTime(shown_cluster_.viewing_ms(), now),
                          FormatAge(shown_cluster_.viewing_ms(), now),
                          session != nullptr ? tr("L goes live.") : tr("This is a recording.")));
  }
  DrawIdentity();
  DrawNotice();
}

void TopBand::DrawIdentity() {
  const v1::WhoAmIResponse* me = shown_cluster_.me();
  identity_->setVisible(me != nullptr);
  if (me == nullptr) return;
  const bool secure = IsSecure(*me);
  const QString text = IdentityText(*me, QDateTime::currentMSecsSinceEpoch());
  const QColor color =
      secure ? palette().color(QPalette::WindowText) : ToneColor(StatusTone::kWarning, palette());
  // Drawn ten times a second: the icon is made anew only when it looks otherwise.
  const int size = fontMetrics().height();
  const QString look =
      QStringLiteral("%1 %2 %3 %4").arg(color.name()).arg(secure).arg(size).arg(text);
  if (identity_->property("look") == look) return;
  identity_->setProperty("look", look);
  QPalette colors = palette();
  for (const auto role : {QPalette::ButtonText, QPalette::WindowText}) colors.setColor(role, color);
  identity_->setPalette(colors);
  identity_->setIconSize({size, size});
  identity_->setIcon(LockIcon(color, secure, size, devicePixelRatioF()));
  identity_->setText(IdentityTitle(*me));
  identity_->setToolTip(SafeTip(text));
  identity_->setAccessibleName(text);
}

void TopBand::CountDropped() {
  const std::uint64_t now = shown_cluster_.link().dropped;
  // Another session counts from 0.
  const std::uint64_t in_a_second = now - std::min(dropped_, now);
  dropped_ = now;
  dropping_->setVisible(in_a_second >= kDroppingPerSecond);
  SetTextIfNew(dropping_, ToneGlyph(StatusTone::kWarning) + u' ' +
                              tr("Dropping updates: %1/s").arg(in_a_second));
}

void TopBand::DrawNotice() {
  const session::LinkStatus& link = shown_cluster_.link();
  const std::int64_t now = QDateTime::currentMSecsSinceEpoch();
  const bool lost = link.link == session::Link::kReconnecting ||
                    link.link == session::Link::kStale || link.link == session::Link::kAuthFailed ||
                    link.link == session::Link::kVersionMismatch ||
                    (link.link == session::Link::kConnecting && link.attempt > 1);
  notice_row_->setVisible(lost && shown_cluster_.session() != nullptr);
  if (!lost || shown_cluster_.session() == nullptr) return;
  const QString name = SafeText(shown_cluster_.session()->target().name, 40);
  const QString why = SafeText(link.detail);
  QString text;
  if (link.last_heard_ms == 0) {
    text = tr("%1 has not been reached yet (%2).").arg(name, why);
  } else {
    text = tr("Nothing heard from %1 since %2%3. Showing the last data.")
               .arg(name, FormatTime(link.last_heard_ms, now),
                    why.isEmpty() ? QString() : tr(" (%1)").arg(why));
  }
  if (link.link == session::Link::kAuthFailed)
    text += tr(" Switch… logs in with another identity.");
  if (link.next_try_ms > now) {
    text += tr(" Retrying in %1 s.").arg((link.next_try_ms - now + 999) / 1000);
  }
  SetTextIfNew(notice_, text);
}

}  // namespace onepiece::gui
