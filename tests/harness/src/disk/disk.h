/* A disk under a program: preloaded, it keeps beside the program's files what of them is durable (record.c), fails and kills on demand
 * (faults.c), and is put before the system by the calls that it takes over (calls.c).
 *
 * RESYNC_DISK_FOLDER is the folder that is watched, RESYNC_DISK_PLATTER one for the record, RESYNC_DISK_CONTROL a file of `struct control`,
 * which may change at any time, and RESYNC_DISK_LOG one that gets a line for each step: its kind, 1 where it was met, else 0, and its path
 * below the folder.
 */
#ifndef DISK_H
#define DISK_H
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* `faults.rs` says the same. Chances are in 65536. */
struct control {
  uint32_t write_fails, write_error, sync_fails;
  /* Processes that have begun on the disk; counted here. What each draws begins with its number and the seed. */
  uint32_t lives;
  uint64_t seed;
  /* Microseconds at most. */
  uint32_t sync_takes;
  /* Writes and syncs that have failed; counted here. */
  uint32_t failures;
  /* As long as this is not 0, no sync ends; and how many wait for that, counted here. */
  uint32_t held, waiting;
  /* Which kinds of steps are counted from now on, in bits; which of them is met; what happens at it; and the error if it fails. */
  uint32_t kinds, number, event, error;
  /* Steps that were counted; counted here. */
  uint32_t steps;
  /* Only steps at a path with this in it are counted. */
  char only[64];
  /* Not 0 once a step is about to be the last of a process; said here. */
  uint32_t killing;
};

enum kind { OPEN = 1, CREATE = 2, READ = 4, WRITE = 8, SYNC = 16, RENAME = 32, UNLINK = 64, MKDIR = 128, TRUNCATE = 256, LOOK = 512 };

/* NULL where nothing is watched. */
extern const char *folder;
extern const char *platter;
extern volatile struct control *control;
/* Held while anything is recorded. */
extern pthread_mutex_t lock;

void die(const char *what);
int is_below(const char *path);
/* The path of an open file, and of a name below an open folder; both are empty where there is none. */
void path_of(int fd, char *path, size_t size);
void path_at(int at, const char *name, char *path, size_t size);

/* faults.c */
/* Before a step: 0, or the error that it ends with, or less than 0, which `after` takes when it is done. */
int step(enum kind kind, const char *path);
int step_at(enum kind kind, int at, const char *name);
int step_of(enum kind kind, int fd);
/* After a step that was done: what it ends with. */
long after(int met, long done);
/* Holds or delays a sync, and tells whether chance lets it fail; the lock is held but while it waits. */
void wait_for_sync(void);
int sync_fails(void);
/* How many of these bytes may be written; -1: none. The lock is held. */
ssize_t may_be_written(size_t count);

/* record.c */
struct file;
/* A write that is under way; no sync begins or ends meanwhile. */
struct writing {
  struct file *file;
  off_t at;
};
/* Before a write of `count` bytes; `at` < 0: at the descriptor's place. Returns how many of them may be written; -1: none. */
ssize_t begin_write(struct writing *writing, int fd, off_t at, size_t count);
/* After it: notes what was written, and returns the same. Also after a write of which nothing was allowed. */
long end_write(struct writing *writing, long done);
long cut(int fd, off_t size);
long opened(int at, const char *path, int flags, mode_t mode);
long renamed(int from, const char *old, int at, const char *path, unsigned flags);
int synced(int fd);
int all_synced(void);
int removed_folder(int at, const char *path);
DIR *list(const char *path);

#endif
