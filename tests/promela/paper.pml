/* The paper's double ring (docs/ring-protocol.md, "How does the paper's ring fail"): a spin lock without owner, a busy
 * bit that a compare-and-swap sets in the size slot and the consumer clears, tail and unlock as plain writes, and
 * waiters that break the lock after a timeout. One timeout is enough to lose every property; without any, all hold. It
 * stays here as the model that must fail.
 *
 * STEALS     timeouts that may strike, at any moment at which a waiter sees the lock held
 * AWAITED    the charitable reading: every operation is awaited, the busy swap's result is honoured (the size found
 *            there is adopted, the next slot tried), and only then is a message acknowledged
 * CHECK_...  the property asserted at the end; without any of them, all of them */
#ifndef STEALS
#define STEALS 1
#endif
#define CELLS 8
#define SLOTS 4
#define SIZE(m) ((m) == 1 -> 2 : 1)

byte buf[CELLS], slot[SLOTS]; /* slot: the size, 0 = not busy */
byte lock, tail_off, tail_slot, head_off, head_slot;
byte steals, ended;
byte delivered[4];
bit acked[4];
bit corrupt, duplicate;

mtype = { WRITE_DATA, SWAP_SIZE, WRITE_TAIL, UNLOCK };
#ifdef AWAITED
chan wire[2] = [1] of { mtype, byte, byte };
chan completion[2] = [1] of { bit };
#define POST(op, a, b) wire[i]!op, a, b; completion[i]?ok
#define COMPLETE(x) completion[i]!x
#else
chan wire[2] = [4] of { mtype, byte, byte };
#define POST(op, a, b) wire[i]!op, a, b
#define COMPLETE(x) skip
#endif

/* One queue pair: operations take effect in order, at any later moment. */
proctype Wire(byte i) {
  byte a, b;
end:
  do
  :: atomic {
       wire[i]?WRITE_DATA, a, b ->
       buf[b % CELLS] = a;
       if
       :: SIZE(a) == 2 -> buf[(b + 1) % CELLS] = a
       :: else
       fi;
       COMPLETE(1)
     }
  :: atomic {
       wire[i]?SWAP_SIZE, a, b ->
       if
       :: slot[b] == 0 -> slot[b] = a; COMPLETE(1)
       :: else -> COMPLETE(0)
       fi
     }
  :: atomic { wire[i]?WRITE_TAIL, a, b -> tail_off = a; tail_slot = b; COMPLETE(1) }
  :: atomic {
       wire[i]?UNLOCK, a, b ->
       lock = 0;
#ifndef AWAITED
       acked[a] = 1;
#endif
       COMPLETE(1)
     }
  od
}

proctype Sender(byte i; byte m; byte last) {
  byte off, at, found, tries;
  bit ok;
  do
  :: m > last -> break
  :: else ->
    tries = 0;
    if
    :: atomic { lock == 0 -> lock = 1 }
    :: atomic { lock == 1 && steals < STEALS -> steals++ } /* the timeout: released and taken again */
    fi;
    atomic { off = tail_off; at = tail_slot };
again:
    found = slot[at];
    if
    :: found != 0 -> /* a busy slot that the tail has not passed: somebody stopped half-way, step over it */
      off = (off + found) % CELLS; at = (at + 1) % SLOTS;
      POST(WRITE_TAIL, off, at)
#ifdef AWAITED
      ; goto again
#endif
    :: else
    fi;
    POST(WRITE_DATA, m, off);
    POST(SWAP_SIZE, SIZE(m), at);
#ifdef AWAITED
    if
    :: !ok && tries < 2 -> tries++; goto again
    :: !ok && tries >= 2 -> goto unlock
    :: ok
    fi;
#endif
    POST(WRITE_TAIL, (off + SIZE(m)) % CELLS, (at + 1) % SLOTS);
#ifdef AWAITED
    acked[m] = 1;
unlock:
#endif
    POST(UNLOCK, m, 0);
    m++
  od;
  ended++
}

proctype Receiver() {
  byte size, m;
end:
  do
  :: atomic {
       slot[head_slot] != 0 ->
       size = slot[head_slot];
       m = buf[head_off];
       if
       :: m != 0 -> /* the checksum is the header's: it holds when the first cell is anybody's */
         if
         :: SIZE(m) != size || (size == 2 && buf[(head_off + 1) % CELLS] != m) -> corrupt = 1
         :: else
         fi;
         if
         :: delivered[m] > 0 -> duplicate = 1
         :: else
         fi;
         delivered[m]++
       :: else
       fi;
       slot[head_slot] = 0; head_off = (head_off + size) % CELLS; head_slot = (head_slot + 1) % SLOTS;
       size = 0; m = 0
     }
  od
}

#if !defined(CHECK_CORRUPT) && !defined(CHECK_DUPLICATE) && !defined(CHECK_OFFSETS) && !defined(CHECK_LOST) && !defined(CHECK_TAIL)
#define CHECK_CORRUPT
#define CHECK_DUPLICATE
#define CHECK_OFFSETS
#define CHECK_LOST
#define CHECK_TAIL
#endif

init {
  atomic { run Wire(0); run Wire(1); run Receiver(); run Sender(0, 1, 1); run Sender(1, 2, 3) };
  atomic {
    ended == 2 && len(wire[0]) == 0 && len(wire[1]) == 0 && slot[head_slot] == 0;
#ifdef CHECK_CORRUPT
    assert(!corrupt);
#endif
#ifdef CHECK_DUPLICATE
    assert(!duplicate);
#endif
#ifdef CHECK_OFFSETS
    assert(head_slot != tail_slot || head_off == tail_off);
#endif
#ifdef CHECK_LOST
    assert((!acked[1] || delivered[1] > 0) && (!acked[2] || delivered[2] > 0) && (!acked[3] || delivered[3] > 0));
#endif
#ifdef CHECK_TAIL
    assert(head_slot == tail_slot);
#endif
  }
}
