/* A wall clock that is set while a process runs, for one that is loaded with this library (LD_PRELOAD). It takes the place of the calls of
 * the C library that tell the time of day; the monotonic clock stays, as with a clock that is set.
 *
 *   OTTLA_FAULT_CLOCK  a file of eight bytes, mapped here and by whoever tells: how many nanoseconds the clock is ahead, signed
 *
 * Waits until a time of day are given to the kernel in its own time, so they last as long as they were meant to when they began. (The
 * kernel itself would end those that a clock set forward has passed, and prolong them where it is set back.)
 *
 * libfaketime does more, and too much: under it clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME) fails with EINVAL whatever it is told
 * of the monotonic clock (0.9.10), and that is how Python sleeps since 3.11.
 *
 * Built with: cc -shared -fPIC -O2 -o faultclock.so faultclock.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000 };

static _Atomic int64_t *told;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("OTTLA_FAULT_CLOCK");
  int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void *mapped = mmap(NULL, sizeof *told, PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (mapped != MAP_FAILED) told = mapped;
}

static struct timespec shifted(struct timespec at, int sign) {
  int64_t ahead = told ? sign * atomic_load_explicit(told, memory_order_relaxed) : 0;
  int64_t nanoseconds = at.tv_nsec + ahead % SECOND_NS; /* of the sign of `ahead`, as C has it */
  at.tv_sec += ahead / SECOND_NS + (nanoseconds >= SECOND_NS) - (nanoseconds < 0);
  at.tv_nsec = (nanoseconds + SECOND_NS) % SECOND_NS;
  return at;
}

static int is_time_of_day(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

/* The C library's own, past this one: the first call may come before any constructor has run. */
#define NEXT(name) ((__typeof__(&name))next(&next_##name, #name))
static void *next(_Atomic(void *) *known, const char *name) {
  void *found = atomic_load_explicit(known, memory_order_relaxed);
  if (!found) atomic_store_explicit(known, found = dlsym(RTLD_NEXT, name), memory_order_relaxed);
  return found;
}
static _Atomic(void *) next_clock_gettime, next_pthread_cond_timedwait, next_pthread_cond_clockwait, next_sem_timedwait, next_sem_clockwait,
    next_syscall;

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = NEXT(clock_gettime)(clock, now);
  if (!result && is_time_of_day(clock)) *now = shifted(*now, 1);
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec at;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &at);
  now->tv_sec = at.tv_sec;
  now->tv_usec = at.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (now) *now = at.tv_sec;
  return at.tv_sec;
}

int timespec_get(struct timespec *now, int base) { return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0; }

/* A condition does not say whose time it takes; no machine has been up since 1980, so a deadline says it. */
static struct timespec in_the_kernels(const struct timespec *until) {
  return until->tv_sec < 315532800 ? *until : shifted(*until, -1);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
  struct timespec its = in_the_kernels(until);
  return NEXT(pthread_cond_timedwait)(condition, mutex, &its);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
  struct timespec its = is_time_of_day(clock) ? shifted(*until, -1) : *until;
  return NEXT(pthread_cond_clockwait)(condition, mutex, clock, &its);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  struct timespec its = shifted(*until, -1);
  return NEXT(sem_timedwait)(semaphore, &its);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until) {
  struct timespec its = is_time_of_day(clock) ? shifted(*until, -1) : *until;
  return NEXT(sem_clockwait)(semaphore, clock, &its);
}

/* gRPC's locks wait so, past the C library's. */
long syscall(long number, ...) {
  long given[6];
  __builtin_va_list more;
  __builtin_va_start(more, number);
  for (int at = 0; at < 6; at++) given[at] = __builtin_va_arg(more, long);
  __builtin_va_end(more);
  struct timespec its;
  if (number == SYS_futex && (given[1] & FUTEX_CLOCK_REALTIME) && given[3]) {
    its = shifted(*(const struct timespec *)given[3], -1);
    given[3] = (long)&its;
  }
  return NEXT(syscall)(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
