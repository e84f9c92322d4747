# Two guests, two kernels, one RoCE network. Sourced by run.

guest() {  # guest ROLE NUMBER NETDEV-OPTIONS: starts one
  boot "$cache/$1.log" "$limit_s" "onepiece=$1" "${accelerator[@]}" -smp 1 -m 1024 \
    -netdev "stream,id=net,addr.type=unix,addr.path=$wire,$3" \
    -device "virtio-net-pci,netdev=net,mac=52:54:00:77:00:0$2"
  show "$cache/$1.log" "$1: "
}

vanish() {  # vanish GUEST-PID: as a host without power
  kill -KILL "$1"
  { wait "$1" || true; } 2>/dev/null
}

stalled() {  # stalled ROLE: its producers have come to where they are to be killed
  grep -qs '^stalled' "$scratch/$1/stall.log"
}

two_guests() {
  local consumer
  wire=$cache/wire
  rm -f "$wire"
  guest consumer 1 server=on
  consumer=$guest_pid
  await 10 "$consumer" test -S "$wire"

  guest producer 2 server=off
  await 180 "$guest_pid" stalled producer
  vanish "$guest_pid"
  touch "$scratch/producer-killed"
  echo "onepiece-vm: the producer's guest is killed"
  await 180 "$consumer" test -e "$scratch/consumer/reported"

  guest survivor 3 server=off
  await 180 "$guest_pid" stalled survivor
  vanish "$consumer"
  touch "$scratch/consumer-killed"
  echo "onepiece-vm: the consumer's guest is killed"
  wait "$guest_pid" || true
  wait "$shown"
  finish exit_code.survivor
}
