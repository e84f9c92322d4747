# Guests under QEMU: Debian's kernel (for rdma_rxe), an initramfs, and this host's root file system as theirs.
# Sourced by run, which sets $cache, a folder of our own under the build folder.

modules="virtio_pci virtio_net 9pnet_virtio 9p overlay crc32_generic rdma_rxe rdma_ucm veth"

skip() {  # skip REASON: ctest counts this exit code as skipped
  echo "onepiece-vm SKIP $1"
  exit 77
}

newest_kernel() {
  apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-[0-9]/ {print $2; exit}' || true
}

# prepare_kernel: sets $kernel to a folder with vmlinuz, the modules and their order. One kernel is kept; it serves
# also when a newer one can't be had.
prepare_kernel() {
  local package kept
  kept=$(find "$cache" -path '*/linux-image-*/order' -printf '%h\n')
  package=$(newest_kernel)
  if [ -z "$package" ] && timeout 120 apt-get -q update >"$cache/update.log" 2>&1; then
    package=$(newest_kernel)  # The lists had been removed, as container images do.
  fi
  kernel=$cache/$package
  [ -f "$kernel/order" ] && return
  rm -rf "$cache/unpack"
  mkdir -p "$cache/unpack"
  if [ -n "$package" ] &&
    (cd "$cache/unpack" && timeout 300 apt-get -q download "$package") >"$cache/download.log" 2>&1; then
    dpkg-deb -x "$cache/unpack/"*.deb "$cache/unpack"
    keep_modules "${package#linux-image-}"
    [ -z "$kept" ] || rm -rf "$kept"
  elif [ -n "$kept" ]; then
    kernel=$kept
  elif [ -z "$package" ]; then
    skip "no kernel package: apt-cache does not know linux-image-amd64"
  else
    skip "no kernel package: apt-get download $package: $(tail -n 1 "$cache/download.log")"
  fi
  rm -rf "$cache/unpack"
}

keep_modules() {  # keep_modules VERSION: of the unpacked kernel, those we need, in the order to load them
  local tree=$cache/unpack files
  rm -rf "$kernel"
  mkdir -p "$kernel/modules"
  /sbin/depmod -b "$tree" "$1"
  files=$(for module in $modules; do
    /sbin/modprobe -d "$tree" -S "$1" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}')
  xargs cp -t "$kernel/modules" <<<"$files"
  cp "$tree/boot/vmlinuz-$1" "$kernel/vmlinuz"
  xargs -n1 basename <<<"$files" >"$kernel/order"  # Last: with it the folder is complete.
}

# make_initramfs: $cache/initramfs, from busybox, the modules and our init.
make_initramfs() {
  local tree=$cache/initramfs.tree
  rm -rf "$tree"
  mkdir -p "$tree/bin" "$tree/modules"
  cp /bin/busybox "$tree/bin/"
  cp "$kernel/modules/"* "$kernel/order" "$tree/modules/"
  cp "$here/init" "$tree/init"
  chmod 755 "$tree/init"
  printf 'guest=%q\nscratch=%q\nbuild=%q\n' "$here/guest" "$scratch" "$build" >"$tree/paths"
  (cd "$tree" && find . | cpio --quiet -o -H newc) >"$cache/initramfs"
  rm -rf "$tree"
}

# boot LOG SECONDS WORDS QEMU-ARGUMENT..: starts a guest in the background, $guest_pid; WORDS go on its kernel command
# line. It ends with its init, after SECONDS, or with this script, however that ends.
boot() {
  local log=$1 seconds=$2 words=$3
  shift 3
  : >"$log"
  setpriv --pdeathsig KILL timeout -k 5 "$seconds" setpriv --pdeathsig KILL \
    qemu-system-x86_64 -display none -monitor none -nic none -no-reboot \
    -kernel "$kernel/vmlinuz" -initrd "$cache/initramfs" -append "console=ttyS0 quiet panic=-1 no_timer_check $words" \
    -virtfs local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$scratch,mount_tag=scratch,security_model=none" \
    -serial "file:$log" "$@" </dev/null >"$log.qemu" 2>&1 &
  guest_pid=$!
}

# choose_accelerator: sets $accelerator, QEMU's arguments. KVM may be offered and yet hang (a guest in a guest): it gets
# 10 s.
choose_accelerator() {
  accelerator=(-accel kvm -cpu host)
  if [ -w /dev/kvm ]; then
    boot "$cache/kvm.log" 10 onepiece=probe "${accelerator[@]}"
    wait "$guest_pid" || true
    grep -q 'onepiece-vm up' "$cache/kvm.log" && return
  fi
  accelerator=(-accel tcg,thread=multi -cpu max)
}

# show LOG PREFIX: a guest's output on ours, while it runs; $shown is the process.
show() {
  tail -n +1 -f --pid="$guest_pid" "$1" | sed -u "s/^/$2/" &
  shown=$!
}

await() {  # await SECONDS GUEST-PID COMMAND..: until it succeeds; false when that takes longer or the guest has ended
  local until=$((SECONDS + $1)) pid=$2
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$until" ] || ! kill -0 "$pid" 2>/dev/null; then
      echo "onepiece-vm FAIL waiting for: $*"
      return 1
    fi
    sleep 0.2
  done
}
