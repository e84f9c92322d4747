// What a screen reader finds on the canvas: a list for each stage, and a list item for each
// instance. QGraphicsView itself exposes nothing.
//
// Threading: GUI thread only.
#pragma once

#include "gui/views/pipeline_canvas.h"

namespace onepiece::gui {

/// Installs the support for all canvases of the program. More calls have no effect.
void InstallPipelineAccessibility();
/// Tells screen readers that the current place has changed, or that stages or instances have come
/// or gone.
void TellCurrent(PipelineCanvas& canvas);
void TellReordered(PipelineCanvas& canvas);

}  // namespace onepiece::gui
