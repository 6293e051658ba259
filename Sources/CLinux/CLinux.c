#include "CLinux.h"
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
