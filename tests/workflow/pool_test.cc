#include "cluster/workflow/pool.h"

#include <functional>
#include <set>

#include "tests/test_main.h"

namespace onepiece::workflow {

class PoolTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void Ids_SayWhatDiffers() {
    v1::StageSpec stage;
    stage.set_stage("diffusion");
    stage.set_plugin("wan");
    stage.set_model("tiny");
    QCOMPARE(PoolIdOf(stage), std::string("diffusion/wan/tiny"));
    stage.set_mode(v1::MODE_INDIVIDUAL);
    QCOMPARE(PoolIdOf(stage), std::string("diffusion/wan/tiny"));
    stage.set_mode(v1::MODE_COLLABORATION);
    QCOMPARE(PoolIdOf(stage), std::string("diffusion/wan/tiny;collaboration"));
    stage.mutable_parallel()->set_cfg(2);
    stage.mutable_parallel()->set_sequence(4);
    QCOMPARE(PoolIdOf(stage), std::string("diffusion/wan/tiny;collaboration;cfg=2,sequence=4"));
    stage.set_precision("bf16");
    stage.set_threads(2);
    stage.set_device("cuda");
    QCOMPARE(PoolIdOf(stage),
             std::string("diffusion/wan/tiny;2 threads;bf16;cuda;collaboration;cfg=2,sequence=4"));
  }

  void StagesThatDiffer_ShareNoInstances() {
    using Change = std::function<void(v1::StageSpec&)>;
    const std::vector<Change> changes = {
        [](v1::StageSpec&) {},
        [](v1::StageSpec& s) { s.set_stage("b"); },
        [](v1::StageSpec& s) { s.set_plugin("b"); },
        [](v1::StageSpec& s) { s.set_pool("b"); },
        [](v1::StageSpec& s) { s.set_threads(2); },
        [](v1::StageSpec& s) { s.set_precision("f16"); },
        [](v1::StageSpec& s) { s.set_device("cpu"); },
        [](v1::StageSpec& s) { s.set_mode(v1::MODE_COLLABORATION); },
        [](v1::StageSpec& s) { s.mutable_parallel()->set_cfg(2); },
        [](v1::StageSpec& s) { s.mutable_parallel()->set_sequence(2); },
    };
    std::set<PoolKey> keys;
    std::set<std::string> ids;
    for (const Change& change : changes) {
      v1::StageSpec stage;
      stage.set_stage("a");
      stage.set_plugin("a");
      stage.set_model("a");
      change(stage);
      keys.insert(PoolOf(stage));
      ids.insert(PoolIdOf(stage));
    }
    QCOMPARE(keys.size(), changes.size());
    QCOMPARE(ids.size(), changes.size());
  }
};

}  // namespace onepiece::workflow

ONEPIECE_TEST(onepiece::workflow::PoolTest)
#include "pool_test.moc"
