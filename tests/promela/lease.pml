/* Election and lease of the NodeManager's replicas (docs/consensus.md): one slot of the log, discrete time without end.
 * Three acceptors; ballot b belongs to proposer b, which never reuses it. What was sent may be received at any later
 * time, or never. Where one behaviour allows all that another does, the model has only the wider one: an Accept that
 * comes late is accepted but neither binds nor counts, answers arrive at once, a leader does not die by itself.
 * Clocks: a follower is bound for BOUND ticks, counted on a fast clock (one tick less); a leader's lease is LEASE
 * ticks from `sent`, counted on a slow clock (one tick more). BOUND - LEASE = 2 stands for 2 * max_drift.
 * Promises: one value is chosen; and while a leader's lease covers reads, no majority has promised a higher ballot, so
 * nobody else can have chosen anything. -DAGREEMENT leaves leases out: the first promise alone, with more ballots. */
#ifndef BALLOTS
#define BALLOTS 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define N 3
#define QUORUM 2
#define BOUND 3
#ifdef MUTANT_LEASE_WITHOUT_DRIFT
#define LEASE 3
#else
#define LEASE 1
#endif
#define AT(b, i) ((b) * N + (i))

byte crashes = CRASHES;
/* Acceptors, on disk. */
byte promised[N], accepted_ballot[N], accepted_value[N];
/* Acceptors, in memory: for how many ticks they are bound, and to which ballot. */
byte bound_for[N], bound_to[N];
/* Ballots, from 1. */
bit prepared[BALLOTS + 1];
byte released[BALLOTS + 1];      /* whose lease Prepare says has ended */
bit promise[(BALLOTS + 1) * N];  /* Promise of i was sent, with what it had accepted: */
byte told_ballot[(BALLOTS + 1) * N], told_value[(BALLOTS + 1) * N];
byte value[BALLOTS + 1];         /* that the leader proposes; 0: does not lead (yet) */
bit gone[BALLOTS + 1];           /* stepped down */
byte covers[(BALLOTS + 1) * N];  /* ticks for which i's latest answer covers reads */
byte chosen;

#define SAME(i, j) (accepted_ballot[i] > 0 && accepted_ballot[i] == accepted_ballot[j])
inline note_chosen(i, j) {
  if
  :: SAME(i, j) -> assert(chosen == 0 || chosen == accepted_value[i]); chosen = accepted_value[i]
  :: else
  fi
}

/* Phase 1b. */
#if defined(MUTANT_NO_BINDING) || defined(AGREEMENT)
#define UNBOUND(b) 1
#else
#define UNBOUND(b) (bound_for[i] == 0 || (released[b] > 0 && bound_to[i] == released[b]))
#endif
#define TAKE_PREPARE(b) atomic { \
    prepared[b] && b > promised[i] && !promise[AT(b, i)] && UNBOUND(b) -> \
    promised[i] = b; promise[AT(b, i)] = 1; \
    told_ballot[AT(b, i)] = accepted_ballot[i]; told_value[AT(b, i)] = accepted_value[i] }

/* Phase 2b. In time it also grants the lease. */
#ifdef MUTANT_ACCEPT_LOWER_BALLOT
#define MAY_ACCEPT(b) 1
#else
#define MAY_ACCEPT(b) (b >= promised[i])
#endif
#define ACCEPT(b) \
    promised[i] = b; accepted_ballot[i] = b; accepted_value[i] = value[b]; \
    note_chosen(0, 1); note_chosen(0, 2); note_chosen(1, 2)
#ifdef AGREEMENT
#define TAKE_ACCEPT(b) TAKE_LATE_ACCEPT(b)
#else
#define TAKE_ACCEPT(b) atomic { \
    value[b] > 0 && !gone[b] && MAY_ACCEPT(b) && (covers[AT(b, i)] < LEASE + 1 || bound_for[i] < BOUND - 1) -> \
    covers[AT(b, i)] = LEASE + 1; bound_for[i] = BOUND - 1; bound_to[i] = b; ACCEPT(b) }
#endif
#define TAKE_LATE_ACCEPT(b) atomic { \
    value[b] > 0 && MAY_ACCEPT(b) && (promised[i] != b || accepted_ballot[i] != b) -> ACCEPT(b) }

proctype Acceptor(byte i) {
end:
  do
  :: TAKE_PREPARE(1)
  :: TAKE_PREPARE(2)
  :: TAKE_ACCEPT(1)
  :: TAKE_ACCEPT(2)
  :: TAKE_LATE_ACCEPT(1)
  :: TAKE_LATE_ACCEPT(2)
#if BALLOTS > 2
  :: TAKE_PREPARE(3)
  :: TAKE_ACCEPT(3)
  :: TAKE_LATE_ACCEPT(3)
#endif
  /* Crash and restart: the disk survives, the binding does not. */
  :: atomic {
       crashes > 0 && promised[i] > 0 -> crashes--;
       bound_to[i] = 0;
#ifdef MUTANT_NOT_BOUND_AFTER_RESTART
       bound_for[i] = 0;
#elif !defined(AGREEMENT)
       bound_for[i] = BOUND - 1;
#endif
#ifdef MUTANT_FORGET_PROMISE
       promised[i] = 0;
#endif
     }
  od
}

#define PROMISES(b) (promise[AT(b, 0)] + promise[AT(b, 1)] + promise[AT(b, 2)])
#define HIGHER(b) ((promised[0] > b) + (promised[1] > b) + (promised[2] > b))
#ifdef MUTANT_READ_WITHOUT_LEASE
#define COVERED(b) 1
#elif defined(MUTANT_LEASE_BY_ONE_ANSWER)
#define COVERED(b) (covers[AT(b, 0)] > 0 || covers[AT(b, 1)] > 0 || covers[AT(b, 2)] > 0)
#else
#define COVERED(b) ((covers[AT(b, 0)] > 0) + (covers[AT(b, 1)] > 0) + (covers[AT(b, 2)] > 0) >= QUORUM)
#endif

inline recover() {
  /* The value of the highest ballot that a majority reports, else its own. */
  value[b] = b;
#ifndef MUTANT_NO_RECOVERY
  do
  :: i < N ->
     if
     :: promise[AT(b, i)] && told_ballot[AT(b, i)] > best ->
        best = told_ballot[AT(b, i)]; value[b] = told_value[AT(b, i)]
     :: else
     fi;
     told_ballot[AT(b, i)] = 0; told_value[AT(b, i)] = 0;
     i++
  :: else -> break
  od;
  i = 0; best = 0
#endif
}

proctype Proposer(byte b) {
  byte i, best;
end:
  do
  /* Phase 1a, perhaps because the leader of another ballot asked for it and gave up its lease. */
  :: atomic { !prepared[b] -> prepared[b] = 1 }
  :: atomic { b > 1 && !prepared[b] && gone[b - 1] -> released[b] = b - 1; prepared[b] = 1 }
  :: atomic { value[b] == 0 && PROMISES(b) >= QUORUM -> recover() }
#ifndef AGREEMENT
  /* A read at the leader. */
  :: atomic {
       value[b] > 0 &&
#ifndef MUTANT_TAKE_OVER_WITH_LEASE
       !gone[b] &&
#endif
       COVERED(b) && HIGHER(b) >= QUORUM -> assert(false)
     }
#ifdef MUTANT_LEASE_FROM_RECEIPT
  :: atomic { value[b] > 0 && covers[AT(b, 0)] == 1 -> covers[AT(b, 0)] = LEASE + 1 }
#endif
  /* Steps down: its lease ends, then it asks another one. */
  :: atomic {
       b < BALLOTS && value[b] > 0 && !gone[b] -> gone[b] = 1;
#ifndef MUTANT_TAKE_OVER_WITH_LEASE
       covers[AT(b, 0)] = 0; covers[AT(b, 1)] = 0; covers[AT(b, 2)] = 0
#endif
     }
#endif
  od
}

#define TICK(x) x = (x > 0 -> x - 1 : 0)
proctype Time() {
  byte k;
end:
  do
  :: d_step {
       k = 0;
       do
       :: k < N -> TICK(bound_for[k]); k++
       :: else -> break
       od;
       k = N;
       do
       :: k < (BALLOTS + 1) * N -> TICK(covers[k]); k++
       :: else -> break
       od;
       k = 0
     }
  od
}

init {
  atomic {
    run Acceptor(0); run Acceptor(1); run Acceptor(2);
    run Proposer(1); run Proposer(2);
#if BALLOTS > 2
    run Proposer(3);
#endif
#ifndef AGREEMENT
    run Time()
#endif
  }
}
