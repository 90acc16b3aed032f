/* A disk under a program: preloaded, it keeps beside the program's files what of them is durable, and fails on demand.
 *
 * RESYNC_DISK_FOLDER is the folder that is watched. RESYNC_DISK_PLATTER is a folder in which each file has its durable bytes
 * under the number of its inode, and each directory its durable names under the same with ".names". Bytes become durable by
 * fsync and fdatasync of the file, names by fsync of their directory; sync_file_range promises nothing, as its manual says.
 * RESYNC_DISK_CONTROL is a file of `struct control`, which may change at any time.
 *
 * What a program does with the folder is a row of steps. One of them, by its number, can fail, or be the program's last. Only what goes
 * through the C library is seen: `tempfile` renames by a system call of its own.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Chances are in 65536. A sync that fails loses what it was about: the system does not try again. */
struct control {
  uint32_t write_fails, write_error, sync_fails, seed;
  /* Microseconds at most. */
  uint32_t sync_takes;
  /* Writes and syncs that have failed; counted here. */
  uint32_t failures;
  /* As long as this is not 0, no sync ends; and how many wait for that, counted here. */
  uint32_t held, waiting;
  /* Which steps are counted from now on, in bits; which of them is met; what happens at it; and the error if it fails. */
  uint32_t kinds, number, act, error;
  /* Steps that were counted, and how many were met: counted here. */
  uint32_t steps, met;
  /* Only steps at a path with this in it are counted. */
  char only[64];
  /* What was met: written here. */
  char told[512];
};

enum kind { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, RENAME = 16, UNLINK = 32, MKDIR = 64, TRUNCATE = 128, LOOK = 256 };
static const char *const NAMES[] = {"open", "read", "write", "sync", "rename", "unlink", "mkdir", "truncate", "look at"};
enum act { FAIL, DIE_BEFORE, DIE_AFTER, FAIL_ON, FAIL_AFTER };

struct range {
  off_t from, to;
};

/* A file that is watched, with what was written to it since its last sync. */
struct file {
  dev_t dev;
  ino_t ino;
  int watched;
  size_t count, room;
  struct range *dirty;
};

#define FILES 65536
static struct file *files;
static const char *folder, *platter;
static volatile struct control *control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t state;

static void die(const char *what) {
  fprintf(stderr, "the disk of the test broke: %s: %s\n", what, strerror(errno));
  _exit(99);
}

static void begin(void) {
  folder = getenv("RESYNC_DISK_FOLDER");
  platter = getenv("RESYNC_DISK_PLATTER");
  const char *path = getenv("RESYNC_DISK_CONTROL");
  if (!folder || !platter || !path) {
    folder = NULL;
    return;
  }
  files = mmap(NULL, FILES * sizeof *files, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || control == MAP_FAILED || files == MAP_FAILED) die("control");
  close(fd);
  state = control->seed * 2654435769u + 1;
}

/* A random number; the lock is held. */
static uint32_t next(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)(state >> 16);
}

/* Whether something with this chance happens; the lock is held. */
static int happens(uint32_t chance) { return (next() & 0xffff) < chance; }

/* As after `kill -9`. */
static void end(void) {
  for (;;) syscall(SYS_kill, getpid(), SIGKILL), usleep(1000);
}

/* Before a step: 0, or the error that it ends with; -1 where the program dies once it is done, or less where it is said to have failed then. */
static int step(enum kind kind, const char *path) {
  if (!(control->kinds & kind)) return 0;
  size_t length = strlen(folder);
  if (strncmp(path, folder, length) || (path[length] && path[length] != '/')) return 0;
  if (control->only[0] && !strstr(path, (const char *)control->only)) return 0;
  uint32_t now = __atomic_add_fetch(&control->steps, 1, __ATOMIC_SEQ_CST);
  if (control->act == FAIL_ON ? now < control->number : now != control->number) return 0;
  snprintf((char *)control->told, sizeof control->told, "%s %s", NAMES[__builtin_ctz(kind)], path + length);
  control->met++;
  if (control->act == DIE_BEFORE) end();
  if (control->act == DIE_AFTER) return -1;
  return control->act == FAIL_AFTER ? -1 - (int)control->error : (int)control->error;
}

/* After a step that was done. */
static long after(int met, long done) {
  if (met == -1) end();
  if (met == 0) return done;
  errno = -1 - met;
  return -1;
}

/* The same for an open file. */
static int step_at(enum kind kind, int fd) {
  char name[64], path[4096];
  if (!(control->kinds & kind)) return 0;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  return step(kind, path);
}

/* The same for a name in a folder. */
static int step_in(enum kind kind, int at, const char *path) {
  char name[64], full[8192];
  pthread_once(&once, begin);
  if (!folder || !(control->kinds & kind)) return 0;
  if (path[0] == '/') return step(kind, path);
  if (at == AT_FDCWD) snprintf(name, sizeof name, "/proc/self/cwd");
  else snprintf(name, sizeof name, "/proc/self/fd/%d", at);
  ssize_t length = readlink(name, full, 4096);
  if (length < 0) return 0;
  snprintf(full + length, sizeof full - (size_t)length, "/%s", path);
  return step(kind, full);
}

/* A step that is one call. */
#define STEP(before, call)                           \
  int met = before;                                  \
  if (met > 0) {                                     \
    errno = met;                                     \
    return -1;                                       \
  }                                                  \
  return after(met, call);

static void soil(struct file *file, off_t from, off_t to) {
  if (from >= to) return;
  struct range *last = file->count ? &file->dirty[file->count - 1] : NULL;
  if (last && last->to == from) {
    last->to = to;
    return;
  }
  if (file->count == file->room) {
    file->room = file->room ? 2 * file->room : 16;
    file->dirty = realloc(file->dirty, file->room * sizeof *file->dirty);
    if (!file->dirty) die("memory");
  }
  file->dirty[file->count++] = (struct range){from, to};
}

/* What a sync has failed to bring to the disk stays lost, also for processes to come. */
static void lose(const struct stat *st, const struct file *file) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%lu.lost", platter, (unsigned long)st->st_ino);
  FILE *out = fopen(path, "a");
  if (!out || fwrite(file->dirty, sizeof *file->dirty, file->count, out) != file->count || fclose(out)) die("lost");
}

/* What a process before this one has written, and not synced when it died, waits in the system's cache for the next sync. Which part of a
 * file that is, nobody knows: all but what was lost. */
static void inherit(struct file *file, const struct stat *st) {
  static struct range lost[4096];
  char path[4096];
  snprintf(path, sizeof path, "%s/%lu.lost", platter, (unsigned long)st->st_ino);
  FILE *in = fopen(path, "r");
  size_t count = in ? fread(lost, sizeof *lost, sizeof lost / sizeof *lost, in) : 0;
  if (in) fclose(in);
  for (off_t at = 0; at < st->st_size;) {
    off_t next = st->st_size, beyond = at;
    for (size_t i = 0; i < count; i++) {
      if (lost[i].from <= at && lost[i].to > beyond) beyond = lost[i].to;
      if (lost[i].from > at && lost[i].from < next) next = lost[i].from;
    }
    if (beyond == at) soil(file, at, next);
    at = beyond > at ? beyond : next;
  }
}

/* The file behind a descriptor; NULL if it is none that is watched. The lock is held. */
static struct file *find(int fd, const struct stat *st) {
  size_t at = (st->st_ino * 2654435761u ^ st->st_dev) % FILES;
  while (files[at].ino && (files[at].ino != st->st_ino || files[at].dev != st->st_dev)) at = (at + 1) % FILES;
  struct file *file = &files[at];
  if (!file->ino) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    file->dev = st->st_dev;
    file->ino = st->st_ino;
    file->watched = !strncmp(path, folder, strlen(folder));
    /* As long as this is open, no other file gets the number. */
    if (file->watched && syscall(SYS_openat, AT_FDCWD, name, O_PATH | O_CLOEXEC, 0) < 0) die("pin");
    if (file->watched && S_ISREG(st->st_mode)) inherit(file, st);
  }
  return file->watched ? file : NULL;
}

/* Before a write of `count` bytes; `at` < 0: at the descriptor's place. Returns how many of them may be written; -1: none. */
static ssize_t before_write(int fd, off_t at, size_t count) {
  struct stat st;
  pthread_once(&once, begin);
  if (!folder || fstat(fd, &st) || !S_ISREG(st.st_mode)) return (ssize_t)count;
  pthread_mutex_lock(&lock);
  struct file *file = find(fd, &st);
  if (file) {
    if (happens(control->write_fails)) {
      if (happens(32768)) {
        control->failures++;
        errno = (int)control->write_error;
        pthread_mutex_unlock(&lock);
        return -1;
      }
      count = count > 1 ? count / 2 : count;
    }
    int flags = fcntl(fd, F_GETFL);
    if (at < 0) at = flags & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR);
    soil(file, at, at + (off_t)count);
  }
  pthread_mutex_unlock(&lock);
  return (ssize_t)count;
}

/* Before the step of an open file. */
static int step_of(enum kind kind, int fd) {
  pthread_once(&once, begin);
  return folder ? step_at(kind, fd) : 0;
}

static ssize_t write_some(int fd, const void *bytes, size_t count) {
  ssize_t allowed = before_write(fd, -1, count);
  return allowed < 0 ? -1 : syscall(SYS_write, fd, bytes, (size_t)allowed);
}

static ssize_t pwrite_some(int fd, const void *bytes, size_t count, off_t at) {
  ssize_t allowed = before_write(fd, at, count);
  return allowed < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, (size_t)allowed, at);
}

ssize_t write(int fd, const void *bytes, size_t count) { STEP(step_of(WRITE, fd), write_some(fd, bytes, count)) }

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
  STEP(step_of(WRITE, fd), pwrite_some(fd, bytes, count, at))
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }

static ssize_t writev_some(int fd, const struct iovec *parts, int count) {
  size_t total = 0;
  for (int i = 0; i < count; i++) total += parts[i].iov_len;
  ssize_t allowed = before_write(fd, -1, total);
  if (allowed < 0) return -1;
  if ((size_t)allowed == total) return syscall(SYS_writev, fd, parts, count);
  size_t first = parts[0].iov_len < (size_t)allowed ? parts[0].iov_len : (size_t)allowed;
  return syscall(SYS_write, fd, parts[0].iov_base, first);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { STEP(step_of(WRITE, fd), writev_some(fd, parts, count)) }

ssize_t read(int fd, void *bytes, size_t count) { STEP(step_of(READ, fd), syscall(SYS_read, fd, bytes, count)) }

ssize_t pread64(int fd, void *bytes, size_t count, off_t at) {
  STEP(step_of(READ, fd), syscall(SYS_pread64, fd, bytes, count, at))
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at) { return pread64(fd, bytes, count, at); }

static int truncate_to(int fd, off_t size) {
  struct stat st;
  if (folder && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
    pthread_mutex_lock(&lock);
    struct file *file = find(fd, &st);
    /* What was there reads as zeros if the file grows again. */
    if (file) soil(file, size, st.st_size);
    pthread_mutex_unlock(&lock);
  }
  return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate64(int fd, off_t size) { STEP(step_of(TRUNCATE, fd), truncate_to(fd, size)) }

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int rename(const char *from, const char *to) {
  STEP(step_in(RENAME, AT_FDCWD, to), syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0))
}

int unlink(const char *path) { STEP(step_in(UNLINK, AT_FDCWD, path), syscall(SYS_unlinkat, AT_FDCWD, path, 0)) }

int unlinkat(int at, const char *path, int flags) { STEP(step_in(UNLINK, at, path), syscall(SYS_unlinkat, at, path, flags)) }

int rmdir(const char *path) { STEP(step_in(UNLINK, AT_FDCWD, path), syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)) }

int mkdir(const char *path, mode_t mode) { STEP(step_in(MKDIR, AT_FDCWD, path), syscall(SYS_mkdirat, AT_FDCWD, path, mode)) }

int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
  STEP(step_in(LOOK, at, path), syscall(SYS_statx, at, path, flags, mask, found))
}

static int opened(int at, const char *path, int flags, mode_t mode) {
  struct stat st;
  pthread_once(&once, begin);
  int cuts = folder && flags & O_TRUNC && !fstatat(at, path, &st, 0) && S_ISREG(st.st_mode);
  int fd = (int)syscall(SYS_openat, at, path, flags, mode);
  if (fd >= 0 && cuts) {
    pthread_mutex_lock(&lock);
    struct file *file = find(fd, &st);
    if (file) soil(file, 0, st.st_size);
    pthread_mutex_unlock(&lock);
  }
  return fd;
}

/* The mode is there only where a file may be made. */
#define OPEN(name, parameters, at)                   \
  int name(parameters const char *path, int flags, ...) { \
    va_list rest;                                    \
    va_start(rest, flags);                           \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                    \
    STEP(step_in(OPEN, at, path), opened(at, path, flags, mode)) \
  }
#define NOTHING
#define FOLDER int at,
OPEN(open, NOTHING, AT_FDCWD)
OPEN(open64, NOTHING, AT_FDCWD)
OPEN(openat, FOLDER, at)
OPEN(openat64, FOLDER, at)

/* Without a step. */
static DIR *list(const char *path) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  return fd < 0 ? NULL : fdopendir(fd);
}

DIR *opendir(const char *path) {
  int met = step_in(OPEN, AT_FDCWD, path);
  if (met > 0) {
    errno = met;
    return NULL;
  }
  DIR *directory = list(path);
  return after(met, 0) ? NULL : directory;
}

/* The names in a directory are durable now, whoever put them there. */
static void sync_names(int fd, const struct stat *st) {
  char name[64], draft[4128], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  snprintf(path, sizeof path, "%s/%lu.names", platter, (unsigned long)st->st_ino);
  snprintf(draft, sizeof draft, "%s.%d", path, (int)syscall(SYS_gettid));
  DIR *directory = list(name);
  FILE *out = fopen(draft, "w");
  if (!directory || !out) die("names");
  for (struct dirent *entry; (entry = readdir(directory));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
      fprintf(out, "%lu %c %s\n", (unsigned long)entry->d_ino, entry->d_type == DT_DIR ? 'd' : 'f', entry->d_name);
  closedir(directory);
  if (fclose(out) || syscall(SYS_renameat2, AT_FDCWD, draft, AT_FDCWD, path, 0)) die("names");
}

/* What was written before the call is durable now. */
static void sync_bytes(int fd, const struct stat *st, const struct range *ranges, size_t count) {
  static char buffer[65536];
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  snprintf(path, sizeof path, "%s/%lu", platter, (unsigned long)st->st_ino);
  int from = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
  int to = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (from < 0 || to < 0) die("bytes");
  for (size_t i = 0; i < count; i++)
    for (off_t at = ranges[i].from; at < ranges[i].to;) {
      size_t length = (size_t)(ranges[i].to - at) < sizeof buffer ? (size_t)(ranges[i].to - at) : sizeof buffer;
      ssize_t got = syscall(SYS_pread64, from, buffer, length, at);
      if (got <= 0) break;
      if (syscall(SYS_pwrite64, to, buffer, (size_t)got, at) != got) die("bytes");
      at += got;
    }
  if (syscall(SYS_ftruncate, to, st->st_size)) die("size");
  close(from);
  close(to);
}

static int synced(int fd) {
  struct stat st;
  pthread_once(&once, begin);
  if (!folder || fstat(fd, &st) || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) return 0;
  int failed = 0;
  pthread_mutex_lock(&lock);
  struct file *file = find(fd, &st);
  if (file && control->held) {
    control->waiting++;
    while (control->held) {
      pthread_mutex_unlock(&lock);
      usleep(1000);
      pthread_mutex_lock(&lock);
    }
    control->waiting--;
    fstat(fd, &st);
  }
  if (file && control->sync_takes) {
    useconds_t pause = (useconds_t)(next() % control->sync_takes);
    pthread_mutex_unlock(&lock);
    usleep(pause);
    pthread_mutex_lock(&lock);
    fstat(fd, &st);
  }
  /* Only now, so that one that was held back can be met. */
  int met = file ? step_at(SYNC, fd) : 0;
  if (file) {
    failed = met > 0 || happens(control->sync_fails);
    control->failures += (uint32_t)failed;
    if (failed && S_ISREG(st.st_mode)) lose(&st, file);
    if (!failed && S_ISDIR(st.st_mode)) sync_names(fd, &st);
    if (!failed && S_ISREG(st.st_mode)) sync_bytes(fd, &st, file->dirty, file->count);
    file->count = 0;
  }
  pthread_mutex_unlock(&lock);
  if (failed) errno = met > 0 ? met : EIO;
  return failed ? -1 : (int)after(met, 0);
}


/* The true disk is never waited for: what counts is the platter. */
int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }
