/* What is durable: in the platter each file has its durable bytes under the number of its inode, and each folder its durable names under the
 * same with ".names". Bytes become durable by a sync of the file, names by one of their folder; sync_file_range promises nothing, as its
 * manual says. A sync that fails loses what it was about, since the system does not try again: that is in ".lost".
 *
 * Threads write and sync at once. A write is noted when it was made, and no sync begins or ends in between: else it would forget what is not
 * written yet. A sync covers what was noted when it began. What is written to the same place while it goes on may come to the disk with it.
 *
 * A number that the record knows is not given again: of each such file there is a link in the platter's "pins", and folders that are removed
 * go there.
 */
#include "disk.h"

#include <ftw.h>

struct range {
  off_t from, to;
};

/* A file or folder that is watched, with what was written to it and is in no sync that has ended. */
struct file {
  dev_t dev;
  ino_t ino;
  /* Then nobody finds it after a power cut. */
  int nameless;
  size_t count, room;
  struct range *dirty;
  /* Ranges that are not in `dirty` any more; all ranges that there were when the last sync began, which do not grow. */
  uint64_t forgotten, sealed;
  /* Syncs that have begun, and the youngest of those that were done. */
  uint64_t begun, done;
};

/* A sync that has begun: its number among those of the file, and what it covers. */
struct sync {
  uint64_t number, sealed;
  struct stat st;
};

#define FILES 65536
static struct file *files;
const char *folder, *platter;
volatile struct control *control;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void die(const char *what) {
  fprintf(stderr, "the disk of the test broke: %s: %s\n", what, strerror(errno));
  _exit(99);
}

__attribute__((constructor(101))) static void begin(void) {
  const char *under = getenv("RESYNC_DISK_FOLDER"), *path = getenv("RESYNC_DISK_CONTROL");
  platter = getenv("RESYNC_DISK_PLATTER");
  if (!under || !platter || !path) return;
  files = mmap(NULL, FILES * sizeof *files, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || control == MAP_FAILED || files == MAP_FAILED) die("control");
  close(fd);
  folder = under;
}

int is_below(const char *path) {
  size_t length = strlen(folder);
  return !strncmp(path, folder, length) && (!path[length] || path[length] == '/');
}

static void link_to(int fd, char name[64]) { snprintf(name, 64, "/proc/self/fd/%d", fd); }

void path_of(int fd, char *path, size_t size) {
  char name[64];
  link_to(fd, name);
  ssize_t length = readlink(fd == AT_FDCWD ? "/proc/self/cwd" : name, path, size - 1);
  path[length < 0 ? 0 : length] = 0;
}

void path_at(int at, const char *name, char *path, size_t size) {
  if (name[0] == '/') {
    snprintf(path, size, "%s", name);
    return;
  }
  path_of(at, path, size / 2);
  size_t length = strlen(path);
  if (length) snprintf(path + length, size - length, "/%s", name);
}

static void in_platter(char path[4096], ino_t ino, const char *ending) {
  snprintf(path, 4096, "%s/%lu%s", platter, (unsigned long)ino, ending);
}

static void in_pins(char path[4096], ino_t ino) { snprintf(path, 4096, "%s/pins/%lu", platter, (unsigned long)ino); }

/* Whether this file, which has a name, keeps its number from now on. */
static int pinned(int fd, ino_t ino) {
  char name[64], path[4096];
  link_to(fd, name);
  in_pins(path, ino);
  if (!linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) || errno == EEXIST) return 1;
  if (errno != ENOENT) die("pin");
  return 0;
}

static void soil(struct file *file, off_t from, off_t to) {
  if (from >= to) return;
  struct range *last = file->forgotten + file->count > file->sealed ? &file->dirty[file->count - 1] : NULL;
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

/* What a sync has failed to bring to the disk, so many ranges, stays lost, also for processes to come. */
static void lose(const struct file *file, size_t count) {
  char path[4096];
  in_platter(path, file->ino, ".lost");
  int out = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ssize_t size = (ssize_t)(count * sizeof *file->dirty);
  if (out < 0 || syscall(SYS_write, out, file->dirty, (size_t)size) != size) die("lost");
  close(out);
}

/* What a process before this one has written, and not synced when it died, waits in the system's cache for the next sync. Which part of a
 * file that is, nobody knows: all but what was lost. */
static void inherit(struct file *file, const struct stat *st) {
  static struct range lost[4096];
  char path[4096];
  in_platter(path, file->ino, ".lost");
  int in = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  ssize_t size = in < 0 ? 0 : syscall(SYS_read, in, lost, sizeof lost);
  if (in >= 0) close(in);
  if (size < 0 || size == (ssize_t)sizeof lost) die("lost");
  size_t count = (size_t)size / sizeof *lost;
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
  if (file->ino) return file;
  char name[64], path[4096];
  path_of(fd, path, sizeof path);
  /* What is elsewhere may lose its number to what is here. */
  if (!is_below(path)) return NULL;
  file->dev = st->st_dev;
  file->ino = st->st_ino;
  if (S_ISREG(st->st_mode)) {
    file->nameless = !pinned(fd, st->st_ino);
    link_to(fd, name);
    if (file->nameless && syscall(SYS_openat, AT_FDCWD, name, O_PATH | O_CLOEXEC, 0) < 0) die("hold");
    inherit(file, st);
  }
  return file;
}

/* The same for a file with bytes, and how it is now. Then the lock is held. */
static struct file *locked(int fd, struct stat *st) {
  if (!folder || fstat(fd, st) || !S_ISREG(st->st_mode)) return NULL;
  pthread_mutex_lock(&lock);
  struct file *file = fstat(fd, st) ? NULL : find(fd, st);
  if (!file) pthread_mutex_unlock(&lock);
  return file;
}

ssize_t begin_write(struct writing *writing, int fd, off_t at, size_t count) {
  struct stat st;
  writing->file = locked(fd, &st);
  if (!writing->file) return (ssize_t)count;
  /* Where all is appended, no other place counts. */
  int appends = fcntl(fd, F_GETFL) & O_APPEND;
  writing->at = appends ? st.st_size : at < 0 ? lseek(fd, 0, SEEK_CUR) : at;
  return may_be_written(count);
}

long end_write(struct writing *writing, long done) {
  if (!writing->file) return done;
  if (done > 0) soil(writing->file, writing->at, writing->at + (off_t)done);
  pthread_mutex_unlock(&lock);
  return done;
}

/* What is cut off reads as zeros if the file grows again. */
long cut(int fd, off_t size) {
  struct stat st;
  struct file *file = locked(fd, &st);
  long ended = syscall(SYS_ftruncate, fd, size);
  if (!file) return ended;
  if (!ended) soil(file, size, st.st_size);
  pthread_mutex_unlock(&lock);
  return ended;
}

long opened(int at, const char *path, int flags, mode_t mode) {
  struct stat st;
  /* Nothing else is waited for with the lock: a pipe may have no other end. */
  int cuts = folder && flags & O_TRUNC && !fstatat(at, path, &st, 0) && S_ISREG(st.st_mode);
  if (!cuts) return syscall(SYS_openat, at, path, flags, mode);
  pthread_mutex_lock(&lock);
  off_t size = fstatat(at, path, &st, 0) ? 0 : st.st_size;
  long fd = syscall(SYS_openat, at, path, flags, mode);
  struct file *file = fd >= 0 && !fstat((int)fd, &st) && S_ISREG(st.st_mode) ? find((int)fd, &st) : NULL;
  if (file) soil(file, 0, size);
  pthread_mutex_unlock(&lock);
  return fd;
}

/* Who lists a folder meanwhile could see neither name. */
long renamed(int from, const char *old, int at, const char *path, unsigned flags) {
  if (folder) pthread_mutex_lock(&lock);
  long ended = syscall(SYS_renameat2, from, old, at, path, flags);
  if (folder) pthread_mutex_unlock(&lock);
  return ended;
}

DIR *list(const char *path) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  return fd < 0 ? NULL : fdopendir(fd);
}

static int is_entry(const struct dirent *entry) { return strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."); }

/* What has this name now, which keeps its number; whether there is anything. */
static int found(DIR *directory, const char *name, struct stat *st) {
  int fd = (int)syscall(SYS_openat, dirfd(directory), name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) return 0;
  int is_there = !fstat(fd, st) && (!S_ISREG(st->st_mode) || pinned(fd, st->st_ino));
  close(fd);
  return is_there;
}

/* Where the names of a folder are, and where those are that a sync of this thread is about. */
static void in_names(char path[4096], char draft[4128], ino_t ino) {
  in_platter(path, ino, ".names");
  snprintf(draft, 4128, "%s.%d", path, (int)syscall(SYS_gettid));
}

/* The names in a folder, whoever put them there, are those that a sync is about. */
static void draft_names(int fd, ino_t ino) {
  char name[64], draft[4128], path[4096];
  struct stat st;
  link_to(fd, name);
  in_names(path, draft, ino);
  DIR *directory = list(name);
  int draft_fd = (int)syscall(SYS_openat, AT_FDCWD, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (!directory || draft_fd < 0) die("names");
  for (struct dirent *entry; (entry = readdir(directory));)
    if (is_entry(entry) && found(directory, entry->d_name, &st)) {
      char line[512];
      char kind = S_ISDIR(st.st_mode) ? 'd' : 'f';
      int length = snprintf(line, sizeof line, "%lu %c %s\n", (unsigned long)st.st_ino, kind, entry->d_name);
      if (syscall(SYS_write, draft_fd, line, (size_t)length) != length) die("names");
    }
  closedir(directory);
  close(draft_fd);
}

/* These names are durable now, or were never. */
static void end_names(ino_t ino, int are_durable) {
  char draft[4128], path[4096];
  in_names(path, draft, ino);
  long ended = are_durable ? syscall(SYS_renameat2, AT_FDCWD, draft, AT_FDCWD, path, 0)
                           : syscall(SYS_unlinkat, AT_FDCWD, draft, 0);
  if (ended) die("names");
}

/* What was written before the call is durable now. */
static void sync_bytes(int fd, const struct stat *st, const struct range *ranges, size_t count) {
  static char buffer[65536];
  char name[64], path[4096];
  link_to(fd, name);
  in_platter(path, st->st_ino, "");
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

/* The lock is held. */
static struct sync begin_sync(int fd, struct file *file, const struct stat *st) {
  file->sealed = file->forgotten + file->count;
  if (S_ISDIR(st->st_mode)) draft_names(fd, st->st_ino);
  return (struct sync){++file->begun, file->sealed, *st};
}

/* A sync is done, or fails by this error if it is more than 0. The lock is held. */
static void end_sync(int fd, struct file *file, const struct sync *sync, int error) {
  struct stat st = sync->st, now;
  size_t count = sync->sealed > file->forgotten ? (size_t)(sync->sealed - file->forgotten) : 0;
  /* One that began later was done before it, and has brought more. */
  int is_late = sync->number < file->done;
  control->failures += error > 0;
  if (S_ISDIR(st.st_mode)) end_names(st.st_ino, error <= 0 && !is_late);
  if (S_ISREG(st.st_mode) && !file->nameless) {
    /* What was cut off meanwhile does not come back as zeros. */
    if (!fstat(fd, &now) && now.st_size < st.st_size) st.st_size = now.st_size;
    if (error > 0) lose(file, count);
    else if (!is_late) sync_bytes(fd, &st, file->dirty, count);
  }
  if (error <= 0 && !is_late) file->done = sync->number;
  file->count -= count;
  file->forgotten += count;
  if (file->count) memmove(file->dirty, file->dirty + count, file->count * sizeof *file->dirty);
}

/* The true disk is never waited for: what counts is the platter. */
int synced(int fd) {
  struct stat st;
  if (!folder || fstat(fd, &st) || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) return 0;
  int met = 0;
  pthread_mutex_lock(&lock);
  struct file *file = find(fd, &st);
  if (file) {
    fstat(fd, &st);
    struct sync sync = begin_sync(fd, file, &st);
    wait_for_sync();
    /* Only now, so that one that was held back can be met. */
    met = step_of(SYNC, fd);
    if (met == 0 && sync_fails()) met = EIO;
    end_sync(fd, file, &sync, met);
  }
  pthread_mutex_unlock(&lock);
  if (met > 0) errno = met;
  return met > 0 ? -1 : (int)after(met, 0);
}

static int sync_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
  (void)walk;
  if (type != FTW_F && type != FTW_D) return 0;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return 0;
  struct file *file = find(fd, st);
  if (file) {
    struct sync sync = begin_sync(fd, file, st);
    end_sync(fd, file, &sync, 0);
  }
  close(fd);
  return 0;
}

/* Everything in the folder is durable. */
int all_synced(void) {
  int met = step(SYNC, folder);
  if (met > 0) {
    errno = met;
    return -1;
  }
  pthread_mutex_lock(&lock);
  nftw(folder, sync_one, 16, FTW_PHYS);
  pthread_mutex_unlock(&lock);
  return (int)after(met, 0);
}

static int is_empty(const char *name) {
  DIR *directory = list(name);
  int others = !directory;
  for (struct dirent *entry; directory && (entry = readdir(directory));) others |= is_entry(entry);
  if (directory) closedir(directory);
  return !others;
}

/* Removes a folder, whose number is not given again. */
int removed_folder(int at, const char *path) {
  char full[8192], name[64], pin[4096];
  struct stat st;
  if (folder) path_at(at, path, full, sizeof full);
  int fd = folder && is_below(full)
               ? (int)syscall(SYS_openat, at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)
               : -1;
  if (fd < 0) return (int)syscall(SYS_unlinkat, at, path, AT_REMOVEDIR);
  link_to(fd, name);
  fstat(fd, &st);
  in_pins(pin, st.st_ino);
  /* Who lists the folder above never misses one that stays. */
  pthread_mutex_lock(&lock);
  int ended = is_empty(name) ? (int)syscall(SYS_renameat2, at, path, AT_FDCWD, pin, 0) : -1;
  int error = is_empty(name) ? errno : ENOTEMPTY;
  if (!ended && error == ENOTEMPTY) {
    /* Something was put into it meanwhile. */
    if (syscall(SYS_renameat2, AT_FDCWD, pin, at, path, 0)) die("put back");
    ended = -1;
  }
  pthread_mutex_unlock(&lock);
  close(fd);
  errno = error;
  return ended;
}
