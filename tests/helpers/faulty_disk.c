// A disk that fails on demand, in the process that this library is preloaded into (LD_PRELOAD): calls of libc that change
// files below one folder are counted; the chosen one fails with an error or ends the process, and all can be recorded.
// Allocations fail in the same way.
//
//   cc -shared -fPIC -O1 -o faulty_disk.so faulty_disk.c -ldl
//
// Driven by faulty_disk.py through ctypes. Calls elsewhere, and those that only read, pass.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, FSYNC = 4, RENAME = 8, MKDIR = 16, LINK = 32, UNLINK = 64, TRUNCATE = 128, MARK = 256 };
enum { MEMORY = 512, LARGE = 1 << 15 };  // of a tensor, any number of bytes; of other memory, so many and more
enum { PAGES = 16 };

static char root[4096], failed[4096];
static uint32_t kinds;
static long at, count, pages;
static int error_number, lasting, record = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// Fails call number `number` of these kinds below the folder, 0 for none: with an error, or, for error 0, by SIGKILL.
// A lasting error stays for all later calls of these kinds.
void faulty_arm(const char *folder, uint32_t of_kinds, long number, int with_error, int stays) {
  snprintf(root, sizeof root, "%s", folder);
  kinds = of_kinds, at = number, error_number = with_error, lasting = stays, count = pages = 0, failed[0] = 0;
}
long faulty_count(void) { return count; }
const char *faulty_failed(void) { return failed; }
void faulty_record(int file) { record = file; }

static int absolute(int folder, const char *path, char *full) {
  char base[4096];
  if (path[0] == '/') return snprintf(full, 4096, "%s", path);
  if (folder == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) return 0;
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, base, sizeof base - 1);
    if (size < 0) return 0;
    base[size] = 0;
  }
  return snprintf(full, 4096, "%s/%s", base, path);
}

static int path_of(int file, char *full) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, full, 4095);
  full[size < 0 ? 0 : size] = 0;
  return size > 0;
}

static int below_root(const char *full) {
  size_t length = strlen(root);
  return length && !strncmp(full, root, length) && (full[length] == '/' || !full[length]);
}

// One record: kind, bytes of the two paths and of the data, offset; then these.
static void note(uint32_t kind, const char *path, const char *other, int64_t offset, const void *data, int64_t size) {
  if (record < 0) return;
  int64_t head[5] = {kind, (int64_t)strlen(path), (int64_t)strlen(other), size, offset};
  __typeof__(&write) real = REAL(write);
  real(record, head, sizeof head), real(record, path, head[1]), real(record, other, head[2]);
  if (size) real(record, data, size);
}
void faulty_mark(int64_t number) { note(MARK, "", "", number, "", 0); }

// Whether this call is to fail; errno is set then.
static int fails(uint32_t kind, const char *full) {
  if (!(kinds & kind) || (kind != MEMORY && !below_root(full))) return 0;
  ++count;
  if (!at || (lasting ? count < at : count != at)) return 0;
  if (!error_number) kill(getpid(), SIGKILL);
  if (!failed[0]) snprintf(failed, sizeof failed, "%u %s", kind, full);
  errno = error_number;
  return 1;
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
  char full[4096];
  int changes = (flags & O_CREAT) || (flags & O_ACCMODE) != O_RDONLY;
  int known = changes && absolute(folder, path, full) && below_root(full);
  if (known && fails(OPEN, full)) return -1;
  struct stat before;
  int was_there = !known || !stat(full, &before);
  int file = REAL(openat)(folder, path, flags, mode);
  if (known && file >= 0 && (!was_there || (flags & O_TRUNC))) note(OPEN, full, "", !was_there, "", 0);
  return file;
}
#define WITH_MODE                                                   \
  mode_t mode = 0;                                                  \
  if (flags & (O_CREAT | __O_TMPFILE)) {                            \
    va_list list;                                                   \
    va_start(list, flags), mode = va_arg(list, mode_t), va_end(list); \
  }
int open(const char *path, int flags, ...) { WITH_MODE return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { WITH_MODE return opened(AT_FDCWD, path, flags, mode); }

static ssize_t written(int file, const void *data, size_t size, ssize_t (*real)(int, const void *, size_t)) {
  char full[4096];
  int known = file != record && path_of(file, full) && below_root(full);
  if (known && fails(WRITE, full)) return -1;
  int64_t offset = known ? lseek(file, 0, fcntl(file, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : 0;
  ssize_t done = real(file, data, size);
  if (known && done > 0) note(WRITE, full, "", offset, data, done);
  return done;
}
ssize_t write(int file, const void *data, size_t size) { return written(file, data, size, REAL(write)); }

// SQLite's, which COLMAP keeps its features in: a thousand for five photos, so that one in PAGES counts. A loss of power
// does not replay them.
static ssize_t written_at(int file, const void *data, size_t size, off64_t offset) {
  char full[4096];
  if (path_of(file, full) && below_root(full) && pages++ % PAGES == 0 && fails(WRITE, full)) return -1;
  return REAL(pwrite64)(file, data, size, offset);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at_) { return written_at(file, data, size, at_); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at_) { return written_at(file, data, size, at_); }

// What C++ opens its files with.
static FILE *stream(const char *path, const char *mode, FILE *(*real)(const char *, const char *)) {
  char full[4096];
  int changes = strpbrk(mode, "wa+") != NULL && absolute(AT_FDCWD, path, full);
  return changes && fails(OPEN, full) ? NULL : real(path, mode);
}
FILE *fopen(const char *path, const char *mode) { return stream(path, mode, REAL(fopen)); }
FILE *fopen64(const char *path, const char *mode) { return stream(path, mode, REAL(fopen64)); }

static int flushed(int file, int (*real)(int)) {
  char full[4096];
  int known = path_of(file, full) && below_root(full);
  if (known && fails(FSYNC, full)) return -1;
  if (known) note(FSYNC, full, "", 0, "", 0);
  return real(file);
}
int fsync(int file) { return flushed(file, REAL(fsync)); }
int fdatasync(int file) { return flushed(file, REAL(fdatasync)); }

#define TWO_PATHS(kind, call)                                                             \
  char from[4096], to[4096];                                                              \
  int known = absolute(AT_FDCWD, old_path, from) && absolute(AT_FDCWD, new_path, to) && below_root(to); \
  if (known && fails(kind, to)) return -1;                                                \
  int result = call;                                                                      \
  if (known && !result) note(kind, from, to, 0, "", 0);                                   \
  return result;
int rename(const char *old_path, const char *new_path) { TWO_PATHS(RENAME, REAL(rename)(old_path, new_path)) }
int link(const char *old_path, const char *new_path) { TWO_PATHS(LINK, REAL(link)(old_path, new_path)) }
int linkat(int a, const char *old_path, int b, const char *new_path, int flags) {
  TWO_PATHS(LINK, REAL(linkat)(a, old_path, b, new_path, flags))
}

#define ONE_PATH(kind, call)                                              \
  char full[4096];                                                        \
  int known = absolute(AT_FDCWD, path, full) && below_root(full);         \
  if (known && fails(kind, full)) return -1;                              \
  int result = call;                                                      \
  if (known && !result) note(kind, full, "", 0, "", 0);                   \
  return result;
int mkdir(const char *path, mode_t mode) { ONE_PATH(MKDIR, REAL(mkdir)(path, mode)) }
int unlink(const char *path) { ONE_PATH(UNLINK, REAL(unlink)(path)) }
int ftruncate64(int file, off_t size) {
  char full[4096];
  int known = path_of(file, full) && below_root(full);
  if (known && fails(TRUNCATE, full)) return -1;
  if (known) note(TRUNCATE, full, "", size, "", 0);
  return REAL(ftruncate64)(file, size);
}

// PyTorch takes the memory of tensors by posix_memalign; NumPy, Python and C++ what is large by the others.
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static int none_left(size_t size) { return size >= LARGE && fails(MEMORY, "memory"); }
int posix_memalign(void **place, size_t alignment, size_t size) {
  if (fails(MEMORY, "memory")) return ENOMEM;
  *place = __libc_memalign(alignment, size);
  return *place ? 0 : ENOMEM;
}
void *malloc(size_t size) { return none_left(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t number, size_t size) { return none_left(number * size) ? NULL : __libc_calloc(number, size); }
void *realloc(void *old, size_t size) { return none_left(size) ? NULL : __libc_realloc(old, size); }
