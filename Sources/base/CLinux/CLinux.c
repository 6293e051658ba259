#include "CLinux.h"
#include <malloc.h>
#include <sched.h>
#include <sys/wait.h>

int tw_fallocate(int fd, off_t from, off_t length) { return fallocate(fd, 0, from, length); }

int tw_name_thread(pthread_t thread, const char *name) { return pthread_setname_np(thread, name); }

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

int tw_wait(pid_t process, int *status, uint64_t *cpu_nanoseconds) {
    struct rusage used;
    int answer = wait4(process, status, 0, &used);
    if (answer == process) *cpu_nanoseconds = nanoseconds(used.ru_utime) + nanoseconds(used.ru_stime);
    return answer;
}

int tw_pin_thread(pid_t thread, int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return sched_setaffinity(thread, sizeof set, &set);
}

int tw_let_others_first(void) { return setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); }

int tw_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

int tw_accept(int listener, struct sockaddr_storage *peer, socklen_t *length) {
    return accept4(listener, (struct sockaddr *)peer, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

void tw_give_back_memory(void) { malloc_trim(1 << 20); }

// By default the C library raises its threshold when a large piece is freed. It then takes the next large pieces from its heaps,
// which fragments them, and keeps twice as much at the end of each thread's heap, which malloc_trim does not touch. A fixed
// threshold keeps large pieces, such as the keys of a growing segment, outside of the heaps, so that memory stays flat.
__attribute__((constructor)) static void keep_little_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
}

int tw_unshare_descriptors(void) { return unshare(CLONE_FILES); }

static __thread uint32_t descriptor_table;

uint32_t tw_descriptor_table(void) { return descriptor_table; }

void tw_number_descriptor_table(uint32_t number) { descriptor_table = number; }

int tw_close_range(unsigned first, unsigned last) { return (int)syscall(SYS_close_range, first, last, 0); }

int tw_epoll_control(int epoll, int operation, int fd, uint32_t events, uint64_t key) {
    struct epoll_event event = {.events = events, .data.u64 = key};
    return epoll_ctl(epoll, operation, fd, &event);
}

int tw_epoll_wait(int epoll, struct tw_readiness *ready, int capacity, int timeout_milliseconds) {
    struct epoll_event events[TW_EPOLL_BATCH];
    int count = epoll_wait(epoll, events, capacity < TW_EPOLL_BATCH ? capacity : TW_EPOLL_BATCH, timeout_milliseconds);
    for (int i = 0; i < count; i++) {
        ready[i].key = events[i].data.u64;
        ready[i].events = events[i].events;
    }
    return count;
}

static int argument_count;
static char **argument_values;

// The C library hands main's arguments to what runs before it, too.
__attribute__((constructor)) static void keep_arguments(int count, char **values) {
    argument_count = count;
    argument_values = values;
}

int tw_argument_count(void) { return argument_count; }
const char *tw_argument(int place) { return place < argument_count ? argument_values[place] : ""; }
