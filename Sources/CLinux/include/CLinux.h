#pragma once
// What Swift's Glibc module does not show: headers it leaves out, variadic calls and macros.
// _GNU_SOURCE must not be defined here: Glibc's module was made without it, and types would differ.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <errno.h>
#include <unistd.h>

static inline int tw_open(const char *path, int flags, unsigned mode) { return open(path, flags, mode); }
static inline int tw_fcntl_get_flags(int fd) { return fcntl(fd, F_GETFL); }
static inline int tw_fcntl_set_flags(int fd, int flags) { return fcntl(fd, F_SETFL, flags); }
