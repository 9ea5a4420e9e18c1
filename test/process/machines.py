"""Machines for tests: network namespaces of this computer, and a wire between them.

The test runs again inside namespaces of its own (network, mounts, host name, processes). Nothing
outside sees its interfaces and files, and the kernel removes all of it with the test, even if the
test is killed. The only way between two machines is the wire: this program reads the packets of each
machine from a TUN device and forwards them, late, twice, in another order or not at all. It does
what `tc netem` does, on kernels without netem, too."""

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
INSIDE = "HEDDLE_TEST_INSIDE_NAMESPACES"
DEVICE = "wire0"
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET, TUNSETIFF, TUN_WITHOUT_HEADER, PR_SET_PDEATHSIG = 0x40000000, 0x400454CA, 0x1001, 1


def inside_own_namespaces():
    """Returns inside the namespaces. Outside, runs this program there and exits as it does; exits
    with code 77 if this user may not create namespaces."""
    if INSIDE in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        tempfile.tempdir = "/run"
        return
    missing = [tool for tool in ("unshare", "ip", "mount", "hostname") if not shutil.which(tool)]
    space = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--uts", "--mount",
             "--pid", "--fork", "--kill-child", "--mount-proc"]
    probe = None if missing else subprocess.run([*space, "ip", "tuntap", "add", DEVICE, "mode", "tun"],
                                                capture_output=True, text=True, check=False)
    if missing or probe.returncode:
        why = f"no {', '.join(missing)} on PATH" if missing else \
            f"this user cannot create network namespaces with TUN devices: {probe.stderr.strip()}"
        print(f"skipped: {os.path.basename(sys.argv[0])}: {why}")
        sys.exit(SKIPPED)
    with subprocess.Popen([*space, sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"},
                          preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)) as inner:
        for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(ending, lambda *_: inner.kill())
        code = inner.wait()
    sys.exit(code if code >= 0 else 128 - code)


class Machine:
    """A network namespace with one interface, a host name and a hosts file."""

    def __init__(self, number, hosts):
        self.name = f"node{number}"
        self.address = f"10.77.0.{number + 1}"
        self.address6 = f"fd77::{number + 1}"
        self.hosts = hosts
        self.ip("netns", "add", self.name)
        self.fd = self.open_device()
        for line in (f"addr add {self.address}/24 dev {DEVICE}", f"addr add {self.address6}/64 dev {DEVICE} nodad",
                     f"link set {DEVICE} up", "link set lo up"):
            self.ip("-n", self.name, *line.split())

    @staticmethod
    def ip(*args):
        subprocess.run(["ip", *args], check=True)

    def open_device(self):
        own, other = (os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", f"/run/netns/{self.name}"))
        if LIBC.setns(other, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), TUN_WITHOUT_HEADER))
        LIBC.setns(own, CLONE_NEWNET)
        os.close(own)
        os.close(other)
        return fd

    def start(self, command, **options):
        """A process on this machine; it has the number of the process that is returned."""
        enter = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
        return subprocess.Popen(["ip", "netns", "exec", self.name, "unshare", "--uts", "--mount", "sh", "-c", enter,
                                 self.name, self.hosts, *command], stdin=subprocess.DEVNULL, **options)

    def link(self, state):
        """Takes the interface `up` or `down`."""
        self.ip("-n", self.name, "link", "set", DEVICE, state)


class Wire(threading.Thread):
    """Forwards packets between machines. Times are in seconds, the others are shares of packets."""

    def __init__(self, machines, seed):
        super().__init__(daemon=True)
        self.machines = machines
        self.by_address = {}
        for number, machine in enumerate(machines):
            self.by_address[bytes(map(int, machine.address.split(".")))] = number
            self.by_address[bytes.fromhex("fd77" + "00" * 13 + f"{number + 1:02x}")] = number
        self.chance = random.Random(seed)
        self.delay = self.jitter = self.loss = self.twice = self.late = 0.0
        # Pairs of machines between which nothing passes.
        self.cuts = set()
        self.counts = dict.fromkeys(("passed", "lost", "doubled", "late", "cut"), 0)
        self.over = False
        self.start()

    def cut(self, one, *others):
        """Cuts a machine off the others, or off all."""
        others = others or [machine for machine in range(len(self.machines)) if machine != one]
        self.cuts |= {frozenset((one, other)) for other in others}

    def heal(self):
        self.cuts = set()

    def run(self):
        fds = {machine.fd: number for number, machine in enumerate(self.machines)}
        # Time, a number that keeps the order of equal times, receiver, packet.
        flying = []
        sent = 0
        while not self.over:
            wait = max(0.0, flying[0][0] - time.monotonic()) if flying else 0.1
            for fd in select.select(list(fds), [], [], min(wait, 0.1))[0]:
                try:
                    packet = os.read(fd, 1 << 16)
                except OSError:  # the interface is down
                    time.sleep(0.01)
                    continue
                for due in self.times_of(fds[fd], packet):
                    sent += 1
                    heapq.heappush(flying, (due, sent, *self.target(packet), packet))
            while flying and flying[0][0] <= time.monotonic():
                _, _, number, packet = heapq.heappop(flying)
                try:
                    os.write(self.machines[number].fd, packet)
                except OSError:
                    pass

    def target(self, packet):
        to = self.by_address.get(packet[16:20] if packet[0] >> 4 == 4 else packet[24:40])
        return () if to is None else (to,)

    def times_of(self, source, packet):
        """When the packet arrives: never, once or twice."""
        target = self.target(packet)
        if not target:
            return []
        if frozenset((source, *target)) in self.cuts:
            self.counts["cut"] += 1
            return []
        if self.chance.random() < self.loss:
            self.counts["lost"] += 1
            return []
        copies = 1 + (self.chance.random() < self.twice)
        times = []
        for _ in range(copies):
            late = self.chance.random() < self.late
            self.counts["late"] += late
            times.append(time.monotonic() + max(0.0, self.delay + self.chance.uniform(-1, 1) * self.jitter + 0.003 * late))
        self.counts["passed"] += 1
        self.counts["doubled"] += copies - 1
        return times


class Network:
    """Machines node0, node1, ... on one wire. `hosts` is the text of each machine's hosts file."""

    def __init__(self, folder, count, seed):
        self.hosts = os.path.join(folder, "hosts")
        with open(self.hosts, "w", encoding="utf-8") as file:
            file.write("127.0.0.1 localhost\n")
        self.machines = [Machine(number, self.hosts) for number in range(count)]
        self.wire = Wire(self.machines, seed)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wire.over = True
        self.wire.join()
        for machine in self.machines:
            os.close(machine.fd)
            machine.ip("netns", "del", machine.name)
