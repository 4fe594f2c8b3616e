/*
 * superpage-vm, a memory manager for pages of several sizes, for C and C++: docs/capi.md.
 *
 * All addresses and lengths are in bytes; those of ranges are multiples of the base page. Each
 * function returns SUPERPAGE_OK or why it failed; superpage_message() says it in words. A null
 * pointer or a value that is out of range is such a reason. A call that fails changes nothing, with
 * three exceptions: SUPERPAGE_NO_MEMORY comes after the page daemon ran, SUPERPAGE_REFUSED of
 * superpage_tick() after the background did, SUPERPAGE_PANICKED at any point.
 *
 * A handle may be used by any thread, one at a time: a second call, from another thread or from a
 * callback, returns SUPERPAGE_BUSY. Callbacks run in the thread that made the call.
 *
 * Undefined:
 *  - a handle that was freed;
 *  - superpage_free() while a call with the handle is in progress, or begins, in another thread;
 *  - a pointer, other than null, to less than its type, or a text without its final 0;
 *  - a callback that does not return, as by longjmp() or an exception.
 */
#ifndef SUPERPAGE_H
#define SUPERPAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a call failed. */
enum {
    SUPERPAGE_OK = 0,
    SUPERPAGE_NULL = 1,       /* a pointer that must not be null is */
    SUPERPAGE_VALUE = 2,      /* a value is out of range, or a policy or size unknown */
    SUPERPAGE_NO_SPACE = 3,   /* the address space does not exist */
    SUPERPAGE_UNMAPPED = 4,   /* nothing is mapped at the address */
    SUPERPAGE_PROTECTION = 5, /* the mapping does not allow the access */
    SUPERPAGE_NO_MEMORY = 6,  /* no frame is left */
    SUPERPAGE_REFUSED = 7,    /* the manager refuses, as for a part of a page of a static pool */
    SUPERPAGE_BUSY = 8,       /* another call with this handle is in progress */
    SUPERPAGE_PANICKED = 9,   /* a defect of the manager; only superpage_free() still works */
    SUPERPAGE_DEFECT = 10     /* superpage_validate() found a defect of the manager */
};

/* Rights, as a set. */
enum { SUPERPAGE_READ = 1, SUPERPAGE_WRITE = 2, SUPERPAGE_EXECUTE = 4 };

/* Reference and dirty bits, as a set. */
enum { SUPERPAGE_REFERENCED = 1, SUPERPAGE_MODIFIED = 2 };

/* What a program asks for (madvise). */
enum { SUPERPAGE_HINT_NONE = 0, SUPERPAGE_HINT_HUGE = 1, SUPERPAGE_HINT_BASE = 2 };

/* How a fault was resolved. */
enum {
    SUPERPAGE_HIT = 0,       /* superpage_access(): there was no fault */
    SUPERPAGE_ZERO = 1,      /* a page of zeroes was populated */
    SUPERPAGE_ZERO_PAGE = 2, /* the zero page was mapped, without the right to write */
    SUPERPAGE_RESIDENT = 3,  /* the page was populated, and is now mapped here as well */
    SUPERPAGE_COPY = 4,      /* the page was copied, at its first write */
    SUPERPAGE_RIGHTS = 5,    /* the mapping was only given the right to write */
    SUPERPAGE_SPURIOUS = 6,  /* the mapping was there, with enough rights */
    SUPERPAGE_OTHER = 7
};

/* A page, of any size, as a page-table entry maps it. */
struct superpage_mapping {
    uint64_t address;  /* its first byte, aligned to its size */
    uint64_t physical; /* where that is in physical memory, equally aligned */
    uint64_t bytes;    /* its size */
    uint32_t rights;
    uint32_t bits;     /* its reference and dirty bits */
};

/* What the manager calls; a null function is not called. `map`, `unmap` and `use` come together, or
 * all are null. None may fail, throw, or call the manager with this handle. A mapping is valid until
 * the function returns. */
struct superpage_calls {
    void *context;
    /* Enter a mapping with these bits, or change the rights of the one that is there, and keep bits
     * that it has already: the processor may set one meanwhile. */
    void (*map)(void *context, uint32_t space, const struct superpage_mapping *mapping);
    /* Remove a mapping and return its bits. */
    uint32_t (*unmap)(void *context, uint32_t space, const struct superpage_mapping *mapping);
    /* Return the bits of a mapping, and then clear those of `clear`. */
    uint32_t (*use)(void *context, uint32_t space, const struct superpage_mapping *mapping, uint32_t clear);
    /* Invalidate what TLBs hold of a range, after mappings in it were removed or lost rights or
     * bits, and before frames are used again; UINT64_MAX bytes: of the whole space. */
    void (*flush)(void *context, uint32_t space, uint64_t address, uint64_t bytes);
    /* Fill physical memory with zeroes, or with a copy, before it is mapped. */
    void (*zero)(void *context, uint64_t physical, uint64_t bytes);
    void (*copy)(void *context, uint64_t from, uint64_t to, uint64_t bytes);
};

struct superpage_config {
    uint64_t memory;    /* physical memory, from address 0 on; up to 2^32 - 1 base pages */
    const char *sizes;  /* page sizes of the hardware, as "4K,2M,1G"; null: these three */
    const char *policy; /* as `superpage sim --policy` takes it: "reservation", "thp:max=..."; not
                         * those that need TLB misses or look for pages of zeroes */
    const struct superpage_calls *calls; /* null: no calls; copied */
};

/* What a fault did. */
struct superpage_done {
    uint32_t kind;                    /* SUPERPAGE_ZERO ... */
    uint32_t reserved;                /* 1 if the frame was reserved for the page, else 0 */
    uint64_t zeroed, copied;          /* bytes */
    struct superpage_mapping mapping; /* the page that maps the address now; `bytes` is 0 if the
                                       * page daemon has evicted it already */
};

/* Sizes that there may be. */
enum { SUPERPAGE_SIZES = 19 };

/* Counts of one page size. */
struct superpage_size_counts {
    uint64_t bytes;       /* the size */
    uint64_t mapped;      /* mappings, now */
    uint64_t faults;      /* faults after which a page of this size maps the address */
    uint64_t promotions;  /* superpages made, by promotion or at a fault */
    uint64_t demotions;
    uint64_t allocations; /* extents that faults allocated: base pages, reservations */
};

/* Counts since the start, except those marked `now`. */
struct superpage_counts {
    uint64_t faults;
    uint64_t faults_zero, faults_zero_page, faults_resident, faults_copy, faults_rights;
    uint64_t faults_out_of_memory;
    uint64_t promotions_at_fault, promotions_by_copying;
    uint64_t reservations_made, reservations_preempted, reserved_found;
    uint64_t evictions;
    uint64_t bytes_zeroed, bytes_copied;
    uint64_t resident_bytes;       /* now */
    uint64_t peak_resident_bytes;
    uint64_t free_bytes;           /* now */
    uint64_t sizes;                /* entries of `size` in use */
    struct superpage_size_counts size[SUPERPAGE_SIZES]; /* ascending */
};

typedef struct superpage superpage;

/* Why the last call of this thread failed, as a sentence; valid until the next one fails. */
const char *superpage_message(void);

/* Makes a manager with all memory free. Free it with superpage_free(), which takes null too. */
int superpage_new(const struct superpage_config *config, superpage **made);
int superpage_free(superpage *manager);

/* Address spaces. Numbers are small; those of ended ones are used again. fork() shares pages until
 * one of the two writes. */
int superpage_create(superpage *manager, uint32_t *space);
int superpage_fork(superpage *manager, uint32_t parent, uint32_t *child);
int superpage_exit(superpage *manager, uint32_t space);

/* Private anonymous memory. What map() overlaps is unmapped first. discard() frees the pages and
 * keeps the mapping. Unmapped parts of a range are skipped. */
int superpage_map(superpage *manager, uint32_t space, uint64_t address, uint64_t bytes, uint32_t rights);
int superpage_unmap(superpage *manager, uint32_t space, uint64_t address, uint64_t bytes);
int superpage_protect(superpage *manager, uint32_t space, uint64_t address, uint64_t bytes, uint32_t rights);
int superpage_advise(superpage *manager, uint32_t space, uint64_t address, uint64_t bytes, uint32_t hint);
int superpage_discard(superpage *manager, uint32_t space, uint64_t address, uint64_t bytes);

/* Resolves a fault of one access (SUPERPAGE_READ, SUPERPAGE_WRITE or SUPERPAGE_EXECUTE), and runs
 * the page daemon where it is wanted. */
int superpage_fault(superpage *manager, uint32_t space, uint64_t address, uint32_t access,
                    struct superpage_done *done);

/* An access as a processor makes it: sets the bits of the page, and resolves a fault if it traps. */
int superpage_access(superpage *manager, uint32_t space, uint64_t address, uint32_t access,
                     struct superpage_done *done);

/* What maps an address, with the bits of your entry too; SUPERPAGE_UNMAPPED if no page does. Changes
 * nothing. */
int superpage_translate(superpage *manager, uint32_t space, uint64_t address, struct superpage_mapping *found);

/* Sets the time to `now`, which never decreases, and calls the policy's background if it is due;
 * `spent` is the processor time of all calls before. `next` is when to call again, UINT64_MAX: not
 * before another operation. All are nanoseconds. SUPERPAGE_REFUSED: the background cannot go on;
 * `next` is written all the same. */
int superpage_tick(superpage *manager, uint64_t now, uint64_t spent, uint64_t *next);

/* Takes one base page for the caller's own use, as for page tables, and gives it back. */
int superpage_wire(superpage *manager, uint64_t *physical);
int superpage_unwire(superpage *manager, uint64_t physical);

int superpage_get_counts(superpage *manager, struct superpage_counts *counts);

/* Checks every structure of the manager against every other, for tests: SUPERPAGE_DEFECT if they
 * differ. Later calls still work, but may panic. As slow as memory is large. */
int superpage_validate(superpage *manager);

#ifdef __cplusplus
}
#endif

#endif
