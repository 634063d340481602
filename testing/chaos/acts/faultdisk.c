/* A disk that fails on request, for a process that is loaded with this library (LD_PRELOAD). It takes the place of the calls of the C
 * library that write, read and sync files, and does nothing until it is told to:
 *
 *   OTTLA_FAULT_DISK   a control file, mapped here and by whoever tells: struct control below
 *   OTTLA_FAULT_UNDER  only files whose path begins so are affected
 *
 * Built with: cc -shared -fPIC -O2 -o faultdisk.so faultdisk.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, READS = 4, OPENS = 8 };

struct control {
  _Atomic uint32_t affected; /* bits of the above; 0: a sound disk */
  _Atomic uint32_t error;    /* errno to fail with; 0: not at all */
  _Atomic uint32_t delay_us; /* before each call */
  _Atomic uint32_t spare;
  _Atomic uint64_t failed;   /* calls that were failed, and delayed, since the file was made */
  _Atomic uint64_t delayed;
};

static struct control *told;
static char under[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("OTTLA_FAULT_DISK"), *below = getenv("OTTLA_FAULT_UNDER");
  if (!path || !below) return;
  int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return;
  void *mapped = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  snprintf(under, sizeof under, "%s", below);
  if (mapped != MAP_FAILED) told = mapped;
}

static int is_under(int descriptor) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, under, strlen(under)) == 0;
}

/* Whether the call is to fail, with errno set. Delays it otherwise, where that was asked for. */
static int strikes(uint32_t kind) {
  uint32_t delay_us = told->delay_us, error = told->error;
  if (delay_us) {
    struct timespec pause = {delay_us / 1000000, (long)(delay_us % 1000000) * 1000};
    nanosleep(&pause, NULL);
    told->delayed++;
  }
  if (!error) return 0;
  (void)kind;
  told->failed++;
  errno = (int)error;
  return 1;
}

static int fails(int descriptor, uint32_t kind) {
  return told && (told->affected & kind) && is_under(descriptor) && strikes(kind);
}

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define STANDS_FOR(type, name, parameters, arguments, kind) \
  type name parameters { \
    REAL(name); \
    return fails(descriptor, kind) ? (type)-1 : real arguments; \
  }

STANDS_FOR(ssize_t, write, (int descriptor, const void *data, size_t size), (descriptor, data, size), WRITES)
STANDS_FOR(ssize_t, writev, (int descriptor, const struct iovec *pieces, int count), (descriptor, pieces, count), WRITES)
STANDS_FOR(ssize_t, pwrite, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at), WRITES)
STANDS_FOR(ssize_t, pwrite64, (int descriptor, const void *data, size_t size, off64_t at), (descriptor, data, size, at), WRITES)
STANDS_FOR(ssize_t, pwritev, (int descriptor, const struct iovec *pieces, int count, off_t at), (descriptor, pieces, count, at), WRITES)
STANDS_FOR(ssize_t, pwritev64, (int descriptor, const struct iovec *pieces, int count, off64_t at), (descriptor, pieces, count, at), WRITES)
STANDS_FOR(ssize_t, pwritev2, (int descriptor, const struct iovec *pieces, int count, off_t at, int flags), (descriptor, pieces, count, at, flags), WRITES)
STANDS_FOR(ssize_t, pwritev64v2, (int descriptor, const struct iovec *pieces, int count, off64_t at, int flags), (descriptor, pieces, count, at, flags), WRITES)
STANDS_FOR(int, ftruncate, (int descriptor, off_t size), (descriptor, size), WRITES)
STANDS_FOR(int, ftruncate64, (int descriptor, off64_t size), (descriptor, size), WRITES)
STANDS_FOR(int, fallocate, (int descriptor, int mode, off_t at, off_t size), (descriptor, mode, at, size), WRITES)
STANDS_FOR(int, fallocate64, (int descriptor, int mode, off64_t at, off64_t size), (descriptor, mode, at, size), WRITES)
STANDS_FOR(int, fsync, (int descriptor), (descriptor), SYNCS)
STANDS_FOR(int, fdatasync, (int descriptor), (descriptor), SYNCS)
STANDS_FOR(int, syncfs, (int descriptor), (descriptor), SYNCS)
STANDS_FOR(ssize_t, read, (int descriptor, void *data, size_t size), (descriptor, data, size), READS)
STANDS_FOR(ssize_t, pread, (int descriptor, void *data, size_t size, off_t at), (descriptor, data, size, at), READS)
STANDS_FOR(ssize_t, pread64, (int descriptor, void *data, size_t size, off64_t at), (descriptor, data, size, at), READS)
STANDS_FOR(ssize_t, preadv, (int descriptor, const struct iovec *pieces, int count, off_t at), (descriptor, pieces, count, at), READS)
STANDS_FOR(ssize_t, preadv64, (int descriptor, const struct iovec *pieces, int count, off64_t at), (descriptor, pieces, count, at), READS)

/* A file that is made anew needs room. */
static int making_fails(const char *path, int flags) {
  return told && (flags & O_CREAT) && (told->affected & OPENS) && strncmp(path, under, strlen(under)) == 0 && strikes(OPENS);
}

#define OPENS_FILES(name) \
  int name(const char *path, int flags, ...) { \
    REAL(name); \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
      va_list rest; \
      va_start(rest, flags); \
      mode = va_arg(rest, mode_t); \
      va_end(rest); \
    } \
    return making_fails(path, flags) ? -1 : real(path, flags, mode); \
  }

OPENS_FILES(open)
OPENS_FILES(open64)
