/* What librdkafka's own example needs of librdkafka's private headers, which Debian does not ship. */
#ifndef KUORUM_BENCH_RD_H
#define KUORUM_BENCH_RD_H
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#define rd_snprintf snprintf
#define RD_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define RD_UNUSED __attribute__((unused))
#define RD_NORETURN __attribute__((noreturn))
typedef int64_t rd_ts_t;
/* Microseconds of the monotonic clock. */
static inline rd_ts_t rd_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (rd_ts_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
#endif
