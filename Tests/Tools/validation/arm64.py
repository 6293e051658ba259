"""What of the program can be tried for arm64 where Swift's libraries for it are not: its C, by clang and an emulator."""

import pathlib
import tempfile

from report import NotRun, program, run

SOURCES = pathlib.Path("Sources/base")
HERE = pathlib.Path(__file__).parent
UNPACKED = pathlib.Path(".build/check/debian").resolve()
LIBC = UNPACKED / "usr/aarch64-linux-gnu"


def compiler():
    """With Debian's headers for arm64 in the place of this machine's."""
    if not (LIBC / "include/stdio.h").exists():
        raise NotRun("Debian's libc6-dev-arm64-cross cannot be had")
    clang = program("clang")
    own = run([clang, "-print-resource-dir"]).strip()
    return [clang, "--target=aarch64-linux-gnu", "-std=c2x", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-nostdinc",
            "-isystem", f"{own}/include", "-isystem", str(LIBC / "include")]


def check_compiles():
    with tempfile.TemporaryDirectory() as directory:
        for room in ("CLinux", "CChecksum", "CTexts"):
            for source in sorted((SOURCES / room).glob("*.c")):
                run([*compiler(), "-Wno-c23-extensions", "-I", str(SOURCES / room / "include"), "-c", str(source),
                     "-o", f"{directory}/object"])


def check_checksum():
    """The one place that has instructions of its own for each processor."""
    compilers = next(UNPACKED.glob("usr/lib/gcc-cross/aarch64-linux-gnu/*"), None)
    if compilers is None or not (LIBC / "lib/crt1.o").exists():
        raise NotRun("Debian's libgcc-12-dev-arm64-cross cannot be had")
    with tempfile.TemporaryDirectory() as directory:
        room = SOURCES / "CChecksum"
        run([*compiler(), "-fuse-ld=lld", "-static", "-nostdlib", "-I", str(room / "include"), "-o", f"{directory}/checksum",
             str(LIBC / "lib/crt1.o"), str(LIBC / "lib/crti.o"), str(HERE / "checksum.c"), str(room / "crc32c.c"),
             f"-L{LIBC / 'lib'}", f"-L{compilers}", "-lc", "-lgcc", "-lgcc_eh", "-lc", str(LIBC / "lib/crtn.o")])
        run([program("qemu-aarch64-static"), f"{directory}/checksum"])
