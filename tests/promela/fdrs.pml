/* FDR-S: a segment (lane) for each producer (cluster/ring/lane_sender.cc, retirement.cc). It has no lock, no tail and
 * no reservation: a send is one round trip [payload.write, slot.pad, slot.commit, head.confirm]. Producer 0 is an old
 * process (lane 0) and, from any moment on, a new one (lane 1) that resends. Meanwhile the old one may die, hang or go
 * on writing. Enrolling the new one retires the old lane: the generation ends first, then comes a last look. With
 * -DNEIGHBOUR producer 1 sends in lane 2 at the same time and must not notice anything. */
#define NS 4
#define CAP 4
#define LANES 3
#ifdef NEIGHBOUR
#define SENDERS 3
#else
#define SENDERS 2
#endif
#define START 3 /* seq and offset: message 1 (two cells) needs a PAD */
#ifndef COUNT0
#define COUNT0 2
#endif
#define SIZE(m) ((m) == 1 -> 2 : 1)
#define FIRST(l) ((l) == 2 -> 4 : 1)
#define LAST(l) ((l) == 2 -> 4 : COUNT0)
#define PRODUCER(m) ((m) == 4 -> 1 : 0)

#define TORN 0 /* also: never written */
#define COM 2
#define PAD 3
typedef Slot { byte seq; byte off; byte size; byte msg; byte st }
typedef Lane { byte hseq; byte hoff; bit retired; Slot slot[NS]; byte buf[CAP] }
Lane lane[LANES];

bit admitted[LANES], cut[LANES], dead[LANES], gone[LANES]; /* gone: nobody reads this lane any more */
byte ended, sending = 1; /* sending: the old process's message with no definite outcome */
bit acked[5];
byte delivered[5], last_of[2];

#define L lane[l]
#define S(s) slot[(s) % NS]

inline write_slot(state) {
  d_step {
    if
    :: !gone[l] -> L.S(seq).seq = seq; L.S(seq).st = TORN
    :: else
    fi
  };
  d_step {
    if
    :: !gone[l] -> L.S(seq).off = off; L.S(seq).st = state;
      if
      :: state == PAD -> L.S(seq).size = pad; L.S(seq).msg = 0
      :: else -> L.S(seq).size = SIZE(m); L.S(seq).msg = m
      fi
    :: else
    fi;
    if
    :: state == PAD -> seq++; off = off + pad; pad = 0
    :: else
    fi
  }
}

inline write_cell(at) {
  d_step {
    if
    :: !gone[l] -> L.buf[(at) % CAP] = m
    :: else -> assert(L.buf[(at) % CAP] == 0) /* spares messages that were taken along and are not copied yet */
    fi
  }
}

inline write_payload() { /* The payload lies behind the PAD, which is written after it. */
  write_cell(off + pad);
  if
  :: SIZE(m) == 2 -> write_cell(off + pad + 1)
  :: else
  fi
}

proctype Sender(byte l) {
  byte m, seq, off, pad, hseq, hoff; /* its tail and the head as last seen */
  atomic {
    admitted[l];
    seq = (l == 1 -> 0 : START); off = seq; hseq = seq; hoff = seq;
    if
    :: m = FIRST(l)
    :: l == 1 -> m = sending /* the same producer again: it resends from the message with no definite outcome */
    fi;
    goto send
  };
  {
    skip; /* A block may not begin with a label. */
send:
    if
    :: atomic { l == 0 && !admitted[1] -> sending = m }
    :: l != 0 || admitted[1]
    fi;
    atomic {
      pad = (off % CAP + SIZE(m) > CAP -> CAP - off % CAP : 0);
      if
      :: off + pad + SIZE(m) - hoff <= CAP && seq + (pad > 0 -> 2 : 1) - hseq <= NS -> goto post
      :: else -> pad = 0
      fi
    };
    atomic { L.hseq != hseq || L.retired -> /* BUSY, RING_FULL: the sender rereads the head after a pause */
      if
      :: L.retired -> goto out
      :: else -> hseq = L.hseq; hoff = L.hoff; goto send
      fi
    };
post:
#ifdef MUTANT_COMMITTED_BEFORE_PAYLOAD
    if
    :: pad > 0 -> write_slot(PAD)
    :: else
    fi;
    write_slot(COM); write_payload();
#else
    write_payload();
    if
    :: pad > 0 -> write_slot(PAD)
    :: else
    fi;
    write_slot(COM);
#endif
    atomic {
#ifndef MUTANT_ACKNOWLEDGE_BLINDLY
      if
      :: L.retired -> goto out /* UNKNOWN. The old process asks again and gets STALE_INCARNATION. */
      :: else
      fi;
#endif
      hseq = L.hseq; hoff = L.hoff;
      acked[m] = 1; seq++; off = off + SIZE(m); m++;
      if
      :: m <= LAST(l) -> goto send
      :: else -> goto out
      fi
    }
  } unless { cut[l] };
out:
  atomic { m = 0; seq = 0; off = 0; pad = 0; hseq = 0; hoff = 0; ended++ }
}

proctype Fate(byte l) {
end:
  atomic { admitted[l] && !cut[l] && !acked[LAST(l)] -> cut[l] = 1; dead[l] = 1 }
}

inline offer(message) {
  if
  :: delivered[message] > 0 -> assert(PRODUCER(message) == 0 && admitted[1]); fresh = 0
  :: else ->
    fresh = 1; delivered[message]++;
    assert(message > last_of[PRODUCER(message)]);
    last_of[PRODUCER(message)] = message
  fi
}

#define COVERS(m, off, cell) ((off) % CAP == (cell) || (SIZE(m) == 2 && ((off) + 1) % CAP == (cell)))
inline forget_slot(s) { L.S(s).seq = 0; L.S(s).off = 0; L.S(s).size = 0; L.S(s).msg = 0; L.S(s).st = 0 }

#define NEXT(l) (!gone[l] && admitted[l] && lane[l].S(cur[l]).seq == cur[l] && lane[l].S(cur[l]).st != TORN)
#define EMPTY(l) (gone[l] || (!dead[l] && !NEXT(l)))

proctype Consumer() {
  byte cur[LANES], cof[LANES];
  byte held, held_off, held_lane;
  byte drained[NS], drained_off[NS], drain_next, drain_count, drain_lane;
  byte l, j, k;
  bit fresh, dying;
  atomic {
    admitted[0] = 1; cur[0] = START; cof[0] = START; cur[2] = START; cof[2] = START;
#ifdef NEIGHBOUR
    admitted[2] = 1
#endif
  };
loop:
  do
  /* --- Poll: first messages that were taken along, then one lane or another --- */
  :: atomic {
       held == 0 && drain_next < drain_count ->
       offer(drained[drain_next]);
       if
       :: fresh -> held = drained[drain_next]; held_off = drained_off[drain_next]; held_lane = drain_lane
       :: else -> lane[drain_lane].buf[drained_off[drain_next] % CAP] = 0;
         if
         :: SIZE(drained[drain_next]) == 2 -> lane[drain_lane].buf[(drained_off[drain_next] + 1) % CAP] = 0
         :: else
         fi
       fi;
       drained[drain_next] = 0; drained_off[drain_next] = 0; drain_next++; fresh = 0;
       if
       :: drain_next == drain_count -> drain_next = 0; drain_count = 0; drain_lane = 0
       :: else
       fi
     }
  :: atomic {
       held == 0 && drain_next == drain_count && (NEXT(0) || NEXT(1) || NEXT(2)) ->
       if
       :: NEXT(0) -> l = 0
       :: NEXT(1) -> l = 1
       :: NEXT(2) -> l = 2
       fi;
       assert(L.S(cur[l]).off == cof[l]);
       fresh = 0;
       if
       :: L.S(cur[l]).st == COM -> offer(L.S(cur[l]).msg)
       :: else -> assert(cof[l] % CAP + L.S(cur[l]).size == CAP)
       fi;
       k = L.S(cur[l]).size;
       if
       :: fresh -> held = L.S(cur[l]).msg; held_off = cof[l]; held_lane = l
       :: else -> L.hseq = cur[l] + 1; L.hoff = cof[l] + k
       fi;
       forget_slot(cur[l]);
       cur[l] = cur[l] + 1; cof[l] = cof[l] + k;
       l = 0; k = 0; fresh = 0
     }
  /* --- CopyTo, and the bytes are released --- */
  :: atomic {
       held != 0 ->
       l = held_lane;
       assert(L.buf[held_off % CAP] == held);
       L.buf[held_off % CAP] = 0;
       if
       :: SIZE(held) == 2 -> assert(L.buf[(held_off + 1) % CAP] == held); L.buf[(held_off + 1) % CAP] = 0
       :: else
       fi;
       if
       :: !gone[l] -> L.hseq = cur[l]; L.hoff = cof[l]
       :: else
       fi;
       held = 0; held_off = 0; held_lane = 0; l = 0
     }
  /* --- A lane is retired: the new process enrolls, or (Tick) the lane's producer is dead --- */
  :: atomic { !admitted[1] && !gone[0] && drain_next == drain_count -> l = 0; goto retire }
  :: atomic { !admitted[1] && gone[0] -> admitted[1] = 1 }
  :: atomic { dead[0] && !gone[0] && drain_next == drain_count -> l = 0; dying = 1; goto retire }
  :: atomic { dead[1] && !gone[1] && drain_next == drain_count -> l = 1; dying = 1; goto retire }
  :: atomic { dead[2] && !gone[2] && drain_next == drain_count -> l = 2; dying = 1; goto retire }
  /* --- Everything is definite and drained --- */
  :: atomic {
       ended == SENDERS && held == 0 && drain_next == drain_count && EMPTY(0) && EMPTY(1) && EMPTY(2) ->
       k = 1;
       do
       :: k <= COUNT0 || k == 4 ->
         assert(!acked[k] || delivered[k] == 1);
         assert(acked[k] || (k == 4 && (dead[2] || SENDERS == 2)) || (k < 4 && dead[1]));
         k = (k == COUNT0 -> 4 : k + 1)
       :: else -> break
       od;
       goto done
     }
  od;

retire:
#ifndef MUTANT_LOOK_BEFORE_BUMP
  L.retired = 1;
#endif
  do
  :: atomic {
       NEXT(l) ->
       if
       :: L.S(cur[l]).st == COM ->
         drained[drain_count] = L.S(cur[l]).msg; drained_off[drain_count] = cof[l]; drain_count++; drain_lane = l
       :: else
       fi;
       k = L.S(cur[l]).size; forget_slot(cur[l]); cur[l] = cur[l] + 1; cof[l] = cof[l] + k; k = 0
     }
  :: atomic { !NEXT(l) -> break }
  od;
  atomic {
#ifdef MUTANT_LOOK_BEFORE_BUMP
    L.retired = 1;
#endif
    gone[l] = 1;
    k = 0;
    do
    :: k < NS -> forget_slot(k); k++
    :: else -> break
    od;
    k = 0;
    do /* Clears the cells that nobody is going to copy. */
    :: k < CAP ->
      fresh = (held != 0 && held_lane == l && COVERS(held, held_off, k));
      j = 0;
      do
      :: j < drain_count -> fresh = fresh || COVERS(drained[j], drained_off[j], k); j++
      :: else -> break
      od;
      j = 0;
      if
      :: !fresh -> L.buf[k] = 0
      :: else
      fi;
      k++
    :: else -> break
    od;
    if
    :: !dying -> admitted[1] = 1
    :: else
    fi;
    k = 0; dying = 0; fresh = 0; l = 0
  };
  goto loop;
done:
  skip
}

init {
  atomic {
    lane[0].hseq = START; lane[0].hoff = START; lane[2].hseq = START; lane[2].hoff = START;
    run Consumer(); run Sender(0); run Sender(1); run Fate(0); run Fate(1);
#ifdef NEIGHBOUR
    run Sender(2); run Fate(2)
#endif
  }
}
