#include "CLinux.h"

int tw_fallocate(int fd, off_t from, off_t length) { return fallocate(fd, 0, from, length); }

int tw_name_thread(pthread_t thread, const char *name) { return pthread_setname_np(thread, name); }
