// The contestant of MPI. `onepiece-bench-collectives` starts it with mpiexec; it is a program of
// its own, so that nothing else links MPI.
#include <mpi.h>

#include <cstdlib>

#include "tests/bench/collectives/contest.h"

namespace onepiece::bench {
namespace {

class MpiContestant final : public Contestant {
 public:
  MpiContestant() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_dup(MPI_COMM_WORLD, &group_);
  }
  ~MpiContestant() override { MPI_Comm_free(&group_); }
  MpiContestant(const MpiContestant&) = delete;
  MpiContestant& operator=(const MpiContestant&) = delete;
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void Broadcast(Floats data) override {
    MPI_Bcast(data.data(), Count(data), MPI_FLOAT, 0, group_);
  }
  void AllGather(Floats all) override {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, all.data(), Count(all) / size_, MPI_FLOAT, group_);
  }
  bool ReduceScatter(Floats all, Floats part) override {
    MPI_Reduce_scatter_block(all.data(), part.data(), Count(part), MPI_FLOAT, MPI_SUM, group_);
    return true;
  }
  void AllReduce(Floats data) override {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), Count(data), MPI_FLOAT, MPI_SUM, group_);
  }
  void AllToAll(Floats sent, Floats received) override {
    const int part = Count(sent) / size_;
    MPI_Alltoall(sent.data(), part, MPI_FLOAT, received.data(), part, MPI_FLOAT, group_);
  }
  void Barrier() override { MPI_Barrier(group_); }
  void ChangeGroup() override {
    MPI_Comm next = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank_, &next);
    MPI_Comm_free(&group_);
    group_ = next;
  }

 private:
  static int Count(Floats floats) { return static_cast<int>(floats.size()); }

  int rank_ = 0;
  int size_ = 0;
  MPI_Comm group_ = MPI_COMM_NULL;
};

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    onepiece::bench::MpiContestant group;
    onepiece::bench::RunContest(group, argc > 1 ? std::atof(argv[1]) : 20'000);
  }
  MPI_Finalize();
  return 0;
}
