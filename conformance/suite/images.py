"""The images of `images.txt`, made of upstream's sources and Debian's packages, in one OCI layout in the cache.

Upstream's images stand on Alpine; these stand on Debian with the same programs, so that what tests run in them is there.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import places
from .layout import File, Layout, Start, layer
from .places import CACHE, Untrusted

IMAGES = CACHE / "conformance" / "images"
LAYERS = CACHE / "conformance" / "layers"
# Part of the files' names: raise it whenever what is built changes.
DEBIAN = "3"
# What upstream's agnhost and the images beside it bring: dig, nslookup, curl, wget, nc, ip, ps, stress and a shell.
TOOLS = "bash,bind9-dnsutils,busybox-static,curl,iproute2,iptables,netcat-openbsd,procps,stress,util-linux,wget"
# Version and digest of the source.
BUSYBOX = ("1.37.0", "3311dff32e746499f4df0d5df04d7eb396382d7e108bb9250e7b519b837043a4")
USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
GROUPS = "root:x:0:\nnogroup:x:65534:\n"


def ensure():
    """Makes all images; returns the layout's directory."""
    LAYERS.mkdir(parents=True, exist_ok=True)
    # Several runs may start at once.
    with open(LAYERS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        layout, makers = Layout(IMAGES), Makers()
        for name, kinds, *rest in places.table("images.txt"):
            if kinds != "-":
                layout.image(name, [makers.layer(kind) for kind in kinds.split(",")], start(rest))
        layout.finish()
    return IMAGES


def made():
    """The names of the images that are made."""
    return {row[0] for row in places.table("images.txt") if row[1] != "-"}


def check(listed):
    """Every image that the suite names is in the table, and every one that is made is in the layout."""
    unknown = set(listed) - {row[0] for row in places.table("images.txt")}
    if unknown:
        raise Untrusted(f"images.txt lacks {', '.join(sorted(unknown))}")


def start(words):
    """`entrypoint=… command=a,b user=…`; an underscore in a command is a blank."""
    given = dict(word.split("=", 1) for word in words)
    split = lambda key: [part.replace("_", " ") for part in given.get(key, "").split(",") if part]
    return Start(split("entrypoint"), split("command"), given.get("user", ""))


class Makers:
    """Makes each layer once."""

    def __init__(self):
        self.sources = places.kubernetes_sources() / "test" / "images"
        names = [row[0] for row in places.table("programs.txt")]
        wanted = "agnhost nonewprivs regression-issue-74839 resource-consumer consume-cpu sample-apiserver etcd coredns"
        self.programs = places.programs(*(name for name in names if name in wanted.split()))
        self.done = {}

    def layer(self, kind):
        if kind not in self.done:
            self.done[kind] = getattr(self, kind.replace("-", "_"))()
        return self.done[kind]

    def small(self, name, files):
        """A layer that is quick to make: written anew, and kept as it was if nothing changed."""
        path, fresh = LAYERS / f"{name}.tar", LAYERS / f"{name}.new"
        layer(files, fresh)
        if path.exists() and path.read_bytes() == fresh.read_bytes():
            fresh.unlink()
        else:
            fresh.rename(path)
        return path

    def program(self, name, at):
        return File(at, self.programs[name], mode=0o755)

    def tools(self):
        # Applets that Debian's packages do not bring: `wget`, `ping`, `telnet`, … as in Alpine.
        # Links are looked at themselves: what they lead to is not there outside the root file system.
        applets = 'for a in $("$1/bin/busybox" --list); do for d in bin sbin usr/bin usr/sbin; do ' \
            '[ -e "$1/$d/$a" ] || [ -L "$1/$d/$a" ] && continue 2; done; ln -s /bin/busybox "$1/usr/local/bin/$a"; done'
        return debian("tools", TOOLS, [applets])

    def nginx(self):
        hooks = [
            'ln -sf /dev/stdout "$1/var/log/nginx/access.log"; ln -sf /dev/stderr "$1/var/log/nginx/error.log"',
            'sed -i "s#root /var/www/html;#root /usr/share/nginx/html;#" "$1/etc/nginx/sites-available/default"',
        ]
        return debian("nginx", "nginx-light,curl", hooks)

    def busybox(self):
        busybox = built_busybox()
        listed = subprocess.run([busybox, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        links = [File(f"bin/{applet}", link="busybox") for applet in listed if applet != "busybox"]
        plain = [File("etc/passwd", text=USERS), File("etc/group", text=GROUPS), File("tmp/", mode=0o1777)]
        return self.small("busybox", [File("bin/busybox", busybox, mode=0o755), *links, *plain,
                                      File("root/", mode=0o700), File("var/", mode=0o755), File("home/", mode=0o755)])

    def agnhost(self):
        # A user with a group that only the image knows, as upstream's has.
        passwd, group = from_debian("tools", "./etc/passwd"), from_debian("tools", "./etc/group")
        user = "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"
        groups = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
        porter = self.sources / "agnhost" / "porter"
        return self.small("agnhost", [
            self.program("agnhost", "agnhost"), File("agnhost-2", link="agnhost"), self.program("coredns", "coredns"),
            File("localhost.crt", porter / "localhost.crt"), File("localhost.key", porter / "localhost.key"),
            # A test of image volumes looks for the name of the system that upstream's image stands on.
            File("etc/os-release", text='NAME="Alpine Linux"\nID=alpine\n'),
            File("uploads/", mode=0o755), File("etc/passwd", text=passwd + user), File("etc/group", text=group + groups),
        ])

    def kitten(self):
        return self.page("kitten")

    def nautilus(self):
        return self.page("nautilus")

    def page(self, name):
        html = self.sources / name / "html"
        return self.small(name, [File(file, html / file) for file in (f"{name}.jpg", "data.json")])

    def nonewprivs(self):
        return self.small("nonewprivs", [File("usr/local/bin/nnp", self.programs["nonewprivs"], mode=0o6755)])

    def regression(self):
        return self.small("regression", [self.program("regression-issue-74839", "regression-issue-74839")])

    def consumer(self):
        return self.small("consumer", [self.program("resource-consumer", "consumer"),
                                       self.program("consume-cpu", "consume-cpu")])

    def sample_apiserver(self):
        return self.small("sample-apiserver", [self.program("sample-apiserver", "sample-apiserver"),
                                               File("tmp/", mode=0o1777)])

    def etcd(self):
        return self.small("etcd", [self.program("etcd", "usr/local/bin/etcd"), File("tmp/", mode=0o1777)])

    def coredns(self):
        return self.small("coredns", [self.program("coredns", "coredns")])

    def pause(self):
        source = self.sources.parents[1] / "build" / "pause" / "linux" / "pause.c"
        with tempfile.TemporaryDirectory() as directory:
            built = Path(directory) / "pause"
            subprocess.run(["cc", "-Os", "-static", "-s", "-o", built, source], check=True)
            return self.small("pause", [File("pause", built, mode=0o755)])


def built_busybox():
    """busybox from its own source, which Debian's mirror has: Debian's build loses variables with unusual names."""
    path = LAYERS / f"busybox-{BUSYBOX[0]}"
    if path.exists():
        return path
    source = f"busybox_{BUSYBOX[0]}.orig.tar.bz2"
    package = subprocess.run(["apt-get", "download", "--print-uris", "busybox-static"], stdout=subprocess.PIPE, text=True)
    if package.returncode or not package.stdout:
        raise Untrusted("apt does not know where Debian's packages are (apt-get update)")
    beside = package.stdout.split("'")[1].rsplit("/", 1)[0]
    with tempfile.TemporaryDirectory() as directory:
        file, tree = Path(directory) / source, Path(directory) / f"busybox-{BUSYBOX[0]}"
        subprocess.run(["curl", "--silent", "--show-error", "--fail", "--output", file, f"{beside}/{source}"], check=True)
        if hashlib.sha256(file.read_bytes()).hexdigest() != BUSYBOX[1]:
            raise Untrusted(f"{source} is not the file it should be")
        subprocess.run(["tar", "--extract", "--file", file, "--directory", directory], check=True)
        # Whatever is asked is answered with its default.
        make = lambda *words: subprocess.run(["make", "-C", tree, *words], check=True, input="\n" * 5000, text=True,
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        make("defconfig")
        config = tree / ".config"
        # `tc` wants kernel headers of the past.
        config.write_text(config.read_text().replace("# CONFIG_STATIC is not set", "CONFIG_STATIC=y")
                          .replace("CONFIG_TC=y", "# CONFIG_TC is not set"))
        make("oldconfig")
        make(f"-j{os.cpu_count()}", "busybox")
        shutil.copy(tree / "busybox", path)
    return path


def debian(name, packages, hooks):
    """A root file system of Debian's packages, built under another name first so that it is always whole."""
    path = debian_path(name)
    if path.exists():
        return path
    if not shutil.which("mmdebstrap"):
        raise Untrusted("mmdebstrap is not installed (Debian: apt-get install mmdebstrap)")
    unfinished = path.with_suffix(".unfinished.tar")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale", "info")]
    command += ['--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*']
    command += [f"--customize-hook={hook}" for hook in hooks]
    subprocess.run([*command, "bookworm", unfinished], check=True)
    unfinished.rename(path)
    for older in LAYERS.glob(f"{name}-*.tar"):
        if older != path:
            older.unlink()
    return path


def debian_path(name):
    return LAYERS / f"{name}-{DEBIAN}.tar"


def from_debian(name, member):
    """The text of a file of a root file system."""
    done = subprocess.run(["tar", "-xOf", debian_path(name), member], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
