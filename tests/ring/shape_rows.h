// Tests that a ring of either shape must pass.
#pragma once

#include <QtTest>

#include "cluster/ring/layout.h"

namespace onepiece::ring {

/// The rows of a test that both shapes must pass: its column "shape".
inline void AddShapeRows() {
  QTest::addColumn<Shape>("shape");
  QTest::newRow("shared") << Shape::kShared;
  QTest::newRow("per producer") << Shape::kPerProducer;
}

}  // namespace onepiece::ring
