#pragma once
// What Swift's Glibc module does not show: headers it leaves out, variadic calls and macros.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <errno.h>
#include <unistd.h>

static inline int tw_open(const char *path, int flags, unsigned mode) { return open(path, flags, mode); }
static inline int tw_fcntl_get_flags(int fd) { return fcntl(fd, F_GETFL); }
static inline int tw_fcntl_set_flags(int fd, int flags) { return fcntl(fd, F_SETFL, flags); }
