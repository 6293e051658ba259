#pragma once
// What Swift's Glibc module does not show: headers it leaves out, variadic calls and macros.
//
// This header must not define _GNU_SOURCE: it changes types (fd_set, rusage) that Glibc's module also
// shows, and the compiler refuses two different definitions. GNU's own calls are declared here under our
// names and made in CLinux.c, which is compiled with it.
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
#include <sys/socket.h>
#include <sys/uio.h>
#include <dirent.h>
#include <fcntl.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

static inline int tw_open(const char *path, int flags, unsigned mode) { return open(path, flags, mode); }
static inline int tw_fcntl_get_flags(int fd) { return fcntl(fd, F_GETFL); }
static inline int tw_fcntl_set_flags(int fd, int flags) { return fcntl(fd, F_SETFL, flags); }

static inline int tw_openat(int directory, const char *name, int flags, unsigned mode) {
    return openat(directory, name, flags, mode);
}
static inline int tw_flock(int fd, int operation) { return flock(fd, operation); }
static inline const char *tw_entry_name(const struct dirent *entry) { return entry->d_name; }

int tw_fallocate(int fd, off_t from, off_t length);
int tw_name_thread(pthread_t thread, const char *name);
/// waitpid, and the processor time that the child had used.
int tw_wait(pid_t process, int *status, uint64_t *cpu_nanoseconds);

/// sched_setaffinity, for one processor.
int tw_pin_thread(pid_t thread, int processor);
/// Lets the calling thread have what others leave of the processors.
int tw_let_others_first(void);

/// pipe2, for ends that do not survive exec.
int tw_pipe(int ends[2]);
/// accept4, for a socket that neither blocks nor survives exec.
int tw_accept(int listener, struct sockaddr_storage *peer, socklen_t *length);
// Hands free memory to the kernel, also what lies between pieces in use.
void tw_give_back_memory(void);

/// Gives the calling thread a descriptor table of its own: a copy of the one it shared.
int tw_unshare_descriptors(void);
/// Number that the calling thread gave to its descriptor table; 0 for the table that threads share.
uint32_t tw_descriptor_table(void);
void tw_number_descriptor_table(uint32_t number);
int tw_close_range(unsigned first, unsigned last);

/// What epoll reports, without the packed layout that the kernel's structure has on some machines.
struct tw_readiness {
    uint64_t key;
    uint32_t events;
};
int tw_epoll_control(int epoll, int operation, int fd, uint32_t events, uint64_t key);
/// At most TW_EPOLL_BATCH events are reported by one call.
#define TW_EPOLL_BATCH 256
int tw_epoll_wait(int epoll, struct tw_readiness *ready, int capacity, int timeout_milliseconds);

/// What the process was started with; it stays as long as the process.
int tw_argument_count(void);
const char *tw_argument(int place);
