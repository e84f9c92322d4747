# Guests under QEMU: Debian's kernel (for rdma_rxe), an initramfs, and this host's root file system as theirs.
# Sourced by run, which sets $cache, a folder of our own under the build folder.

modules="virtio_pci virtio_net 9pnet_virtio 9p overlay crc32_generic rdma_rxe rdma_ucm veth"

skip() {  # skip REASON: ctest counts this exit code as skipped
  echo "onepiece-vm SKIP $1"
  exit 77
}

# prepare_kernel: sets $kernel to a folder with vmlinuz, the modules and their order. One kernel is kept.
prepare_kernel() {
  local package
  package=$(apt-cache depends linux-image-amd64 2>/dev/null |
    awk '/Depends: linux-image-[0-9]/ {print $2; exit}')
  if [ -z "$package" ]; then
    package=$(find "$cache" -maxdepth 1 -name 'linux-image-*' -printf '%f\n' | head -1)
    [ -n "$package" ] || skip "no kernel package: apt-cache does not know linux-image-amd64"
  fi
  kernel=$cache/$package
  [ -f "$kernel/order" ] && return
  find "$cache" -maxdepth 1 -name 'linux-image-*' -exec rm -rf {} +
  rm -rf "$cache/unpack"
  mkdir -p "$cache/unpack" "$kernel/modules"
  (cd "$cache/unpack" && timeout 300 apt-get -q download "$package") >"$cache/download.log" 2>&1 ||
    skip "no kernel package: apt-get download $package: $(tail -1 "$cache/download.log")"
  dpkg-deb -x "$cache/unpack/"*.deb "$cache/unpack"
  keep_modules "${package#linux-image-}"
  rm -rf "$cache/unpack"
}

keep_modules() {  # keep_modules VERSION: of the unpacked kernel, those we need, in the order to load them
  local tree=$cache/unpack files
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

# boot ACCELERATOR SECONDS LOG WORDS [QEMU ARGUMENT..]: starts a guest in the background, $guest_pid; WORDS go on its
# kernel command line. It ends with its init, after SECONDS, or with this script, however that ends.
boot() {
  local accelerator=$1 seconds=$2 log=$3 words=$4
  shift 4
  setpriv --pdeathsig KILL timeout -k 5 "$seconds" setpriv --pdeathsig KILL \
    qemu-system-x86_64 $accelerator -smp 2 -m 6144 -display none -monitor none -nic none -no-reboot \
    -kernel "$kernel/vmlinuz" -initrd "$cache/initramfs" -append "console=ttyS0 quiet panic=-1 $words" \
    -virtfs local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$scratch,mount_tag=scratch,security_model=none" \
    -serial "file:$log" "$@" </dev/null >"$log.qemu" 2>&1 &
  guest_pid=$!
}

# choose_accelerator: sets $accelerator. KVM may be offered and yet hang (a guest in a guest): it gets 10 s.
choose_accelerator() {
  accelerator="-accel tcg,thread=multi -cpu max"
  [ -w /dev/kvm ] || return 0
  boot "-accel kvm -cpu host" 10 "$cache/kvm.log" onepiece=probe
  wait "$guest_pid" || true
  grep -q 'onepiece-vm up' "$cache/kvm.log" && accelerator="-accel kvm -cpu host"
  return 0
}
