/* What fails: writes and syncs by chance, or one step of the program by its number, which may also be its last. */
#include "disk.h"

enum event { FAIL, DIE_BEFORE, DIE_AFTER, FAIL_ON, FAIL_AFTER };

static int log_fd = -1;
static uint64_t state;

/* The same from the same number, and nothing alike from the next one (SplitMix64). */
static uint64_t mixed(uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return number ^ number >> 31;
}

/* Opened once, before the program begins. */
__attribute__((constructor(102))) static void begin(void) {
  const char *path = getenv("RESYNC_DISK_LOG");
  if (!folder || !path) return;
  log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (log_fd < 0) die("log");
  uint32_t life = __atomic_add_fetch(&control->lives, 1, __ATOMIC_SEQ_CST);
  /* It would stay 0. */
  state = mixed(control->seed ^ mixed(life)) | 1;
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
  control->killing = 1;
  for (;;) syscall(SYS_kill, getpid(), SIGKILL), usleep(1000);
}

int step(enum kind kind, const char *path) {
  char line[8300];
  if (!(control->kinds & kind) || !is_below(path)) return 0;
  if (control->only[0] && !strstr(path, (const char *)control->only)) return 0;
  uint32_t now = __atomic_add_fetch(&control->steps, 1, __ATOMIC_SEQ_CST);
  int met = control->event == FAIL_ON ? now >= control->number : now == control->number;
  int length = snprintf(line, sizeof line, "%d %d %s\n", kind, met, path + strlen(folder));
  syscall(SYS_write, log_fd, line, (size_t)length);
  if (!met) return 0;
  if (control->event == DIE_BEFORE) end();
  if (control->event == DIE_AFTER) return -1;
  return control->event == FAIL_AFTER ? -1 - (int)control->error : (int)control->error;
}

long after(int met, long done) {
  if (met == -1) end();
  if (met == 0) return done;
  errno = -1 - met;
  return -1;
}

int step_of(enum kind kind, int fd) {
  char path[4096];
  if (!folder || !(control->kinds & kind)) return 0;
  path_of(fd, path, sizeof path);
  return step(kind, path);
}

int step_at(enum kind kind, int at, const char *name) {
  char path[8192];
  if (!folder || !(control->kinds & kind)) return 0;
  path_at(at, name, path, sizeof path);
  return step(kind, path);
}

void wait_for_sync(void) {
  if (control->held) {
    control->waiting++;
    while (control->held) {
      pthread_mutex_unlock(&lock);
      usleep(1000);
      pthread_mutex_lock(&lock);
    }
    control->waiting--;
  }
  if (control->sync_takes) {
    useconds_t pause = (useconds_t)(next() % control->sync_takes);
    pthread_mutex_unlock(&lock);
    usleep(pause);
    pthread_mutex_lock(&lock);
  }
}

int sync_fails(void) { return happens(control->sync_fails); }

ssize_t may_be_written(size_t count) {
  if (!happens(control->write_fails)) return (ssize_t)count;
  if (happens(32768)) {
    control->failures++;
    errno = (int)control->write_error;
    return -1;
  }
  return (ssize_t)(count > 1 ? count / 2 : count);
}
