#!/usr/bin/env bash
# Runs a command in a QEMU guest whose kernel has Soft-RoCE, so that what needs verbs can be tested on a
# machine without an RDMA device. The guest sees this machine's files, read-only; README.md has the rest.
#
#   guest.sh install         installs what check looks for, and what the feature `rdma` builds with, on Debian as
#                            root; 77 if that cannot be
#   guest.sh check           can this machine do it: says what is missing; 77 if it cannot
#   guest.sh build           makes the guest's kernel and initial file system, once
#   guest.sh run CMD ARGS    runs a command in the guest, in the present folder, and ends as it does
#   guest.sh /path/to/test   the same: so cargo can have it for a runner
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FPCACHE_GUEST_DIR:-$(cd "$here/../.." && pwd)/target}/rdma-guest
kernel_series=${FPCACHE_GUEST_KERNEL:-linux-image-6.12-amd64}
memory=${FPCACHE_GUEST_MEMORY:-1536}
# Seconds after which the guest is ended.
limit=${FPCACHE_GUEST_SECONDS:-600}
# How a run ends of which nothing can be told.
proves_nothing=75
packages="qemu-system-x86 kmod cpio xz-utils iproute2 procps perftest"
# What binds to libibverbs, beside a compiler.
build_packages="cmake libibverbs-dev libclang1-14 libclang-common-14-dev"

fail() {
    printf 'guest.sh: %s\n' "$2" >&2
    exit "$1"
}

check() {
    local missing="" tool
    [ "$(uname -m)" = x86_64 ] || fail 77 "the guest is an x86-64 machine, and this is none"
    for tool in qemu-system-x86_64 depmod modprobe cpio xz ip rdma dpkg apt-get apt-cache; do
        command -v "$tool" >/dev/null || [ -x "/usr/sbin/$tool" ] || [ -x "/sbin/$tool" ] || missing="$missing $tool"
    done
    [ -z "$missing" ] || fail 77 "this machine lacks$missing; on Debian: apt-get install -y --no-install-recommends $packages"
}

install() {
    local status log
    status=$(dpkg-query -W -f '${db:Status-Abbrev}\n' $packages $build_packages 2>/dev/null | sort -u) || status=none
    # Most machines that run this often have all of it, and know where to get the kernel.
    [ "$status" = "ii " ] && apt-cache show "$kernel_series" busybox-static >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail 77 "packages are installed by root, on Debian: $packages $build_packages"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    { apt-get update && apt-get install -y --no-install-recommends $packages $build_packages; } >"$log" 2>&1 \
        || fail 77 "packages cannot be installed: $(tail -n 1 "$log")"
    rm -f "$log"
}

# The kernel and busybox are taken out of their packages: nothing of them is installed here.
build() {
    check
    [ -e "$cache/ready" ] && return
    local package release number=10 module
    rm -rf "$cache.new"
    mkdir -p "$cache.new/initrd/"{bin,mods,proc,sys,dev,host}
    cd "$cache.new"
    package=$(apt-cache depends "$kernel_series" 2>/dev/null | awk '/Depends:/{print $2; exit}')
    [ -n "$package" ] || fail 77 "apt knows no $kernel_series; run apt-get update, or name another by FPCACHE_GUEST_KERNEL"
    apt-get download "$package" busybox-static >download.log 2>&1 \
        || fail 77 "$package and busybox-static cannot be downloaded: $(tail -n 1 download.log)"
    dpkg -x "$package"_*.deb kernel
    dpkg -x busybox-static_*.deb busybox
    rm -f ./*.deb
    release=${package#linux-image-}
    PATH=$PATH:/usr/sbin:/sbin depmod -b kernel "$release"
    cp busybox/bin/busybox initrd/bin
    for module in virtio_pci 9p 9pnet_virtio; do
        PATH=$PATH:/usr/sbin:/sbin modprobe -d "$PWD/kernel" -S "$release" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r module; do
        case $module in
        *.xz) xz -dc "$module" >"initrd/mods/$number-$(basename "$module" .xz)" ;;
        *) cp "$module" "initrd/mods/$number-$(basename "$module")" ;;
        esac
        number=$((number + 1))
    done
    cp "$here/init" initrd/init
    chmod +x initrd/init
    (cd initrd && find . | cpio -oH newc --quiet | gzip -1 >../initrd.gz)
    printf '%s\n' "$release" >release
    cd - >/dev/null
    rm -rf "$cache"
    # Paths of modules are looked up by folder, so it may move.
    mv "$cache.new" "$cache"
    touch "$cache/ready"
}

# What the guest runs: Soft-RoCE on a network card that leads nowhere, then the command.
write_job() {
    local variable
    cat <<EOF
modprobe -d "$cache/kernel" -a crc32_generic rdma_rxe dummy
ip link set lo up
ip link add dummy0 type dummy
ip link set dummy0 mtu 4200 up
ip addr add 10.77.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0 || exit 70
ulimit -l unlimited
EOF
    for variable in $(compgen -e); do
        case $variable in
        CARGO_* | RUST* | FPCACHE_*) printf 'export %s=%q\n' "$variable" "${!variable}" ;;
        esac
    done
    printf 'export FPCACHE_IN_GUEST=1 FPCACHE_RUN_DIR=/mnt/out\n'
    printf 'cd %q\n' "$PWD"
    printf '%q ' "$@"
    printf '\nstatus=$?\n'
    # With retransmissions Soft-RoCE was seen to break atomics: a run that failed with any proves nothing.
    cat <<EOF
retried=\$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err)
[ "\$retried" = 0 ] || echo "guest.sh: Soft-RoCE sent requests again: completer_retry_err is \$retried"
[ "\$status" = 0 ] || [ "\$retried" = 0 ] || exit $proves_nothing
exit \$status
EOF
}

boot() {
    local work release status=0
    release=$(cat "$cache/release") && work=$(mktemp -d) || fail 1 "no folder for the run can be made"
    # Expanded now: the name is this function's.
    trap "rm -rf '$work'" EXIT
    write_job "$@" >"$work/job.sh"
    timeout "$limit" qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=512 -cpu max -smp 1 -m "$memory" \
        -nodefaults -no-reboot -display none \
        -kernel "$cache/kernel/boot/vmlinuz-$release" -initrd "$cache/initrd.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off" \
        -serial "file:$work/kernel.log" -serial stdio \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$work,mount_tag=out,security_model=none" </dev/null || status=$?
    if [ ! -e "$work/rc" ]; then
        tail -n 20 "$work/kernel.log" >&2 || true
        [ "$status" != 124 ] || fail 1 "the guest was not done after $limit s, and was ended; FPCACHE_GUEST_SECONDS gives it longer"
        fail 1 "the guest ended before its command did (qemu: $status); above are the kernel's last words"
    fi
    return "$(cat "$work/rc")"
}

# A run of which nothing can be told is made once more.
run() {
    local status=0
    build
    boot "$@" || status=$?
    if [ "$status" = "$proves_nothing" ]; then
        printf 'guest.sh: once more\n' >&2
        status=0
        boot "$@" || status=$?
    fi
    exit "$status"
}

case ${1:-} in
"") fail 2 "what is to be done? install, check, build, or run CMD ARGS" ;;
install) install ;;
check) check ;;
build) build ;;
run)
    shift
    run "$@"
    ;;
*) run "$@" ;;
esac
