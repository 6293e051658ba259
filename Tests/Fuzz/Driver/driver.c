// Gives seeded variations of the seeds to a fuzz target, where libFuzzer is not linked: it needs no build of its own, but is
// not led by what an input reaches. It takes libFuzzer's arguments, as far as Tests/Tools/fuzz gives them, and says the same.
//
//   FuzzX -max_total_time=SECONDS [-seed=N] [-timeout=SECONDS] [-artifact_prefix=PATH] CORPUS | INPUT

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *start, size_t count);

enum { maximum_seeds = 256, maximum_bytes = 16384 };

struct input {
    size_t count;
    uint8_t bytes[maximum_bytes];
};
static struct input seeds[maximum_seeds], tried;
static size_t seed_count;
static char found[4096];

// What is tried when the target ends is what has to be kept.
static void keep_what_ended_it(int signal) {
    int file = open(found, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int is_kept = file >= 0 && write(file, tried.bytes, tried.count) == (ssize_t)tried.count;
    dprintf(2, "ended by signal %d%s\n", signal, signal == SIGALRM ? ", which says that it took too long" : "");
    if (is_kept) dprintf(2, "Test unit written to %s\n", found);
    _exit(77);
}

static void read_input(const char *path, struct input *into) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    into->count = fread(into->bytes, 1, maximum_bytes, file);
    fclose(file);
}

static void read_seeds(const char *directory) {
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, alphasort);
    for (int index = 0; index < count && seed_count < maximum_seeds; index++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entries[index]->d_name);
        if (strncmp(entries[index]->d_name, "seed-", 5) == 0) read_input(path, &seeds[seed_count++]);
    }
    if (!seed_count) {
        fprintf(stderr, "no seeds in %s\n", directory);
        exit(2);
    }
}

static uint64_t state;

static size_t below(size_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound ? (size_t)((state >> 11) % bound) : 0;
}

static void put(size_t at, const uint8_t *bytes, size_t count) {
    if (count > maximum_bytes - tried.count) count = maximum_bytes - tried.count;
    memmove(tried.bytes + at + count, tried.bytes + at, tried.count - at);
    memmove(tried.bytes + at, bytes, count);
    tried.count += count;
}

static void take_out(size_t at, size_t count) {
    if (count > tried.count - at) count = tried.count - at;
    memmove(tried.bytes + at, tried.bytes + at + count, tried.count - at - count);
    tried.count -= count;
}

// Bytes that mean something to texts, lengths and frames.
static const uint8_t telling[] = {0, 1, 2, 8, 16, 31, 32, 34, 39, 40, 41, 44, 45, 46, 58, 91, 92, 93, 123, 125, 126, 127, 128, 192, 254, 255};

static void vary_once(void) {
    size_t at = below(tried.count), rest = tried.count - at;
    const struct input *other = &seeds[below(seed_count)];
    size_t from = below(other->count), length = 1 + below(below(8) ? 8 : 256);
    uint8_t chosen[256];
    switch (tried.count ? below(8) : 5) {
    case 0: tried.bytes[at] ^= (uint8_t)(1 << below(8)); break;
    case 1: tried.bytes[at] = telling[below(sizeof telling)]; break;
    case 2: tried.bytes[at] += (uint8_t)(below(2) ? 1 : 255); break;
    case 3: take_out(at, length); break;
    case 4: // A number of up to eight bytes, as lengths and positions are written.
        for (size_t index = 0; index < 8 && index < rest; index++)
            tried.bytes[at + index] = below(2) ? 0 : telling[below(sizeof telling)];
        break;
    case 5: // A part of another seed.
        if (length > other->count - from) length = other->count - from;
        put(at, other->bytes + from, length);
        break;
    case 6: // A part of itself again.
        if (length > rest) length = rest;
        memcpy(chosen, tried.bytes + at, length);
        put(below(tried.count + 1), chosen, length);
        break;
    default:
        memset(chosen, telling[below(sizeof telling)], sizeof chosen);
        put(at, chosen, length);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int drive(int count, char **arguments) {
    double seconds = 10;
    unsigned timeout = 10;
    const char *path = NULL, *prefix = "";
    for (int index = 1; index < count; index++) {
        const char *argument = arguments[index];
        if (sscanf(argument, "-max_total_time=%lf", &seconds) == 1) continue;
        if (sscanf(argument, "-timeout=%u", &timeout) == 1) continue;
        if (sscanf(argument, "-seed=%lu", &state) == 1) continue;
        if (strncmp(argument, "-artifact_prefix=", 17) == 0) prefix = argument + 17;
        if (argument[0] != '-') path = argument;
    }
    struct stat kind;
    if (!path || stat(path, &kind)) {
        fprintf(stderr, "usage: %s -max_total_time=SECONDS CORPUS | INPUT\n", arguments[0]);
        return 2;
    }
    snprintf(found, sizeof found, "%scrash", prefix);
    const int signals[] = {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
    for (size_t index = 0; index < sizeof signals / sizeof *signals; index++) signal(signals[index], keep_what_ended_it);
    LLVMFuzzerInitialize(&count, &arguments);
    if (!S_ISDIR(kind.st_mode)) {
        read_input(path, &tried);
        return LLVMFuzzerTestOneInput(tried.bytes, tried.count);
    }

    read_seeds(path);
    state = state * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D;
    uint64_t units = 0;
    double began = now(), last = 0;
    alarm(timeout);
    while (last < seconds) {
        tried = seeds[units < seed_count ? units : below(seed_count)];
        for (size_t rounds = units < seed_count ? 0 : 1 + below(below(4) ? 4 : 32); rounds; rounds--) vary_once();
        LLVMFuzzerTestOneInput(tried.bytes, tried.count);
        if (++units % 64 == 0 || now() - began - last > 1) {
            last = now() - began;
            alarm(timeout);
        }
    }
    printf("stat::number_of_executed_units: %lu\nstat::average_exec_per_sec:     %.0f\n", units, (double)units / last);
    return 0;
}

// A program's entry is called after its module where a manifest of Swift's builds it.
#define ENTRY(target) \
    int Fuzz##target##_main(int count, char **arguments) { return drive(count, arguments); }
ENTRY(Filter)
ENTRY(Frames)
ENTRY(HTTP)
ENTRY(JSON)
ENTRY(Message)
ENTRY(PgOutput)
ENTRY(Policy)
ENTRY(Segment)
ENTRY(Stored)
ENTRY(Token)
