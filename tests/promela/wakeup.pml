/* Sleep and wake-up (ConsumerCore::Wait, Sender::Confirm). The consumer sets the flag in the head, looks once more, and
 * sleeps until the doorbell's count changes. A producer rings when round trip 1 showed the flag; otherwise it reads the
 * head once more after its commit. A message that lies in the ring while the consumer sleeps is an invalid end state.
 * (The time limit of the real sleep is for producers that die between commit and doorbell; here nobody dies.) */
#ifndef PROCS
#define PROCS 3
#endif
#ifndef COUNT
#define COUNT 2
#endif
byte tail, cursor, doorbell;
bit committed[PROCS * COUNT];
bit sleeping;

proctype Producer() {
  byte n, seq;
  bit seen;
  do
  :: n == COUNT -> break
  :: else ->
    atomic { seq = tail; tail++; seen = sleeping }; /* round trip 1 and the reservation */
    committed[seq] = 1;
    if
    :: seen -> doorbell++
    :: else
#ifndef MUTANT_NO_SECOND_LOOK
      ; seen = sleeping; /* head.confirm */
      if
      :: seen -> doorbell++ /* doorbell.late */
      :: else
      fi
#endif
    fi;
    atomic { n++; seq = 0; seen = 0 }
  od
}

proctype Consumer() {
  byte count;
  bit ready;
  do
  :: cursor == PROCS * COUNT -> break
  :: else ->
    if
    :: atomic { committed[cursor] -> cursor++ }
    :: else ->
      count = doorbell;
#ifdef MUTANT_LOOK_BEFORE_FLAG
      ready = committed[cursor];
      sleeping = 1;
#else
      sleeping = 1;
      ready = committed[cursor];
#endif
      if
      :: ready
      :: else -> doorbell != count
      fi;
      atomic { sleeping = 0; ready = 0; count = 0 }
    fi
  od
}

init {
  byte i;
  atomic {
    run Consumer();
    do
    :: i < PROCS -> run Producer(); i++
    :: else -> break
    od
  }
}
