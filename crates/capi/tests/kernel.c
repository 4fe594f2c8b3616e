/* A small kernel: its page tables are a list of leaves, its TLBs hold each leaf that was removed until
 * it is flushed, its memory is a buffer. What programs write must be there when they read, and both
 * page tables must agree, whatever the policy does. */
#include "superpage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY (32u << 20)
#define START (1u << 30)
#define BYTES (12u << 20)
#define PAGE 4096u
#define CHECK(condition) check(condition, #condition, __LINE__)
#define OK(call) check((call) == SUPERPAGE_OK, superpage_message(), __LINE__)

static void check(int fine, const char *what, int line) {
    if (!fine) {
        printf("line %d: %s\n", line, what);
        exit(1);
    }
}

struct leaf {
    uint32_t space;
    struct superpage_mapping mapping;
};

static struct kernel {
    struct leaf leaves[16384], stale[16384];
    int count, stales, flushes;
    unsigned char memory[MEMORY];
} kernel;

/* Whether a leaf maps a part of a range. */
static int overlaps(const struct leaf *leaf, uint32_t space, uint64_t address, uint64_t bytes) {
    uint64_t start = leaf->mapping.address;
    return leaf->space == space && (start < address ? address - start < leaf->mapping.bytes : start - address < bytes);
}

static struct leaf *find(uint32_t space, uint64_t address) {
    for (int at = 0; at < kernel.count; at++) {
        struct leaf *leaf = &kernel.leaves[at];
        if (leaf->space == space && address - leaf->mapping.address < leaf->mapping.bytes) return leaf;
    }
    return NULL;
}

static void map(void *context, uint32_t space, const struct superpage_mapping *mapping) {
    struct leaf *leaf = find(space, mapping->address);
    CHECK(context == &kernel);
    if (leaf) {
        CHECK(leaf->mapping.bytes == mapping->bytes && leaf->mapping.physical == mapping->physical);
        leaf->mapping = *mapping;
        return;
    }
    for (int at = 0; at < kernel.stales; at++)
        CHECK(!overlaps(&kernel.stale[at], space, mapping->address, mapping->bytes));
    CHECK(kernel.count < 16384 && mapping->address % mapping->bytes == 0 && mapping->physical % mapping->bytes == 0);
    leaf = &kernel.leaves[kernel.count++];
    leaf->space = space;
    leaf->mapping = *mapping;
}

static uint32_t unmap(void *context, uint32_t space, const struct superpage_mapping *mapping) {
    struct leaf *leaf = find(space, mapping->address);
    uint32_t bits;
    (void)context;
    CHECK(leaf && leaf->mapping.address == mapping->address && leaf->mapping.bytes == mapping->bytes);
    bits = leaf->mapping.bits;
    CHECK(kernel.stales < 16384);
    kernel.stale[kernel.stales++] = *leaf;
    *leaf = kernel.leaves[--kernel.count];
    return bits;
}

static uint32_t use(void *context, uint32_t space, const struct superpage_mapping *mapping, uint32_t clear) {
    struct leaf *leaf = find(space, mapping->address);
    uint32_t bits;
    (void)context;
    CHECK(leaf && leaf->mapping.bytes == mapping->bytes);
    bits = leaf->mapping.bits;
    leaf->mapping.bits &= ~clear;
    return bits;
}

static void flush(void *context, uint32_t space, uint64_t address, uint64_t bytes) {
    (void)context;
    CHECK(bytes > 0);
    kernel.flushes++;
    for (int at = kernel.stales - 1; at >= 0; at--)
        if (overlaps(&kernel.stale[at], space, address, bytes)) kernel.stale[at] = kernel.stale[--kernel.stales];
}

static void zero(void *context, uint64_t physical, uint64_t bytes) {
    (void)context;
    CHECK(physical + bytes <= MEMORY);
    memset(kernel.memory + physical, 0, bytes);
}

static void copy(void *context, uint64_t from, uint64_t to, uint64_t bytes) {
    (void)context;
    memcpy(kernel.memory + to, kernel.memory + from, bytes);
}

/* Resolves a fault; what it says maps the page is in the page table after it. */
static int fault(superpage *manager, uint32_t space, uint64_t address, uint32_t access) {
    struct superpage_done done;
    int code = superpage_fault(manager, space, address, access, &done);
    struct leaf *leaf = find(space, address);
    if (code != SUPERPAGE_OK) return code;
    CHECK(leaf ? done.mapping.address == leaf->mapping.address : done.mapping.bytes == 0);
    CHECK(!leaf || done.mapping.bytes == leaf->mapping.bytes);
    return code;
}

/* The byte of a program, as its processor reaches it. */
static unsigned char *byte(superpage *manager, uint32_t space, uint64_t address, uint32_t access) {
    struct leaf *leaf = find(space, address);
    struct superpage_mapping found;
    for (int tries = 0; !leaf || !(leaf->mapping.rights & access); tries++) {
        CHECK(tries < 4);
        OK(fault(manager, space, address, access));
        leaf = find(space, address);
    }
    leaf->mapping.bits |= access == SUPERPAGE_WRITE ? 3 : 1;
    OK(superpage_translate(manager, space, address, &found));
    CHECK(found.address == leaf->mapping.address && found.physical == leaf->mapping.physical);
    CHECK(found.bytes == leaf->mapping.bytes && found.rights == leaf->mapping.rights);
    CHECK((leaf->mapping.bits & ~found.bits) == 0);
    return &kernel.memory[found.physical + (address - found.address)];
}

/* Pages that are read, then written, then lose rights are still dirty: they stay when memory is short. */
static void pressure(superpage *manager, uint32_t space) {
    const uint64_t bytes = 4 << 20, more = 40 << 20;
    OK(superpage_map(manager, space, START, bytes, 3));
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        CHECK(*byte(manager, space, START + at, SUPERPAGE_READ) == 0);
        *byte(manager, space, START + at, SUPERPAGE_WRITE) = (unsigned char)(at / PAGE | 1);
    }
    OK(superpage_protect(manager, space, START, bytes, SUPERPAGE_READ));
    OK(superpage_map(manager, space, 2 * START, more, 3));
    for (uint64_t at = 0; at < more; at += PAGE)
        if (!find(space, 2 * START + at) && fault(manager, space, 2 * START + at, SUPERPAGE_READ)) break;
    for (uint64_t at = 0; at < bytes; at += PAGE)
        CHECK(*byte(manager, space, START + at, SUPERPAGE_READ) == (unsigned char)(at / PAGE | 1));
}

int main(int arguments, char **argument) {
    struct superpage_calls calls = {&kernel, map, unmap, use, flush, zero, copy};
    struct superpage_config config = {MEMORY, "4K,64K,2M", "", &calls};
    struct superpage_counts counts;
    superpage *manager;
    uint32_t space, child;
    uint64_t next = 0, frame;

    CHECK(arguments == 2);
    config.policy = argument[1];
    memset(kernel.memory, 0xff, MEMORY);
    OK(superpage_new(&config, &manager));
    OK(superpage_wire(manager, &frame));
    OK(superpage_create(manager, &space));
    OK(superpage_map(manager, space, START, BYTES, 3));
    for (uint64_t at = 0; at < BYTES; at += PAGE) {
        CHECK(*byte(manager, space, START + at, SUPERPAGE_READ) == 0);
        *byte(manager, space, START + at, SUPERPAGE_WRITE) = (unsigned char)(at / PAGE);
    }
    /* Background work for ten seconds, as often as it is due. */
    for (uint64_t now = 0; next != UINT64_MAX && now < 10000000000u; now = next > now ? next : now + 1)
        OK(superpage_tick(manager, now, 0, &next));
    OK(superpage_validate(manager));
    OK(superpage_fork(manager, space, &child));
    for (uint64_t at = 0; at < 1 << 20; at += 2 * PAGE) *byte(manager, child, START + at, SUPERPAGE_WRITE) = 7;
    OK(superpage_protect(manager, space, START + PAGE, PAGE, SUPERPAGE_READ));
    OK(superpage_discard(manager, space, START + BYTES / 2, BYTES / 4));
    OK(superpage_unmap(manager, space, START + BYTES / 4, BYTES / 4));
    OK(superpage_validate(manager));
    for (uint64_t at = 0; at < BYTES; at += PAGE) {
        unsigned char own = at >= BYTES / 2 && at < BYTES / 4 * 3 ? 0 : (unsigned char)(at / PAGE);
        unsigned char childs = at < 1 << 20 && at / PAGE % 2 == 0 ? 7 : (unsigned char)(at / PAGE);
        if (at < BYTES / 4 || at >= BYTES / 2) CHECK(*byte(manager, space, START + at, SUPERPAGE_READ) == own);
        CHECK(*byte(manager, child, START + at, SUPERPAGE_READ) == childs);
    }
    OK(superpage_get_counts(manager, &counts));
    CHECK(counts.sizes == 3 && counts.size[1].bytes == 65536 && counts.faults > 0 && kernel.flushes > 0);
    OK(superpage_exit(manager, space));
    OK(superpage_exit(manager, child));
    OK(superpage_create(manager, &space));
    pressure(manager, space);
    OK(superpage_exit(manager, space));
    OK(superpage_unwire(manager, frame));
    OK(superpage_get_counts(manager, &counts));
    CHECK(kernel.count == 0 && kernel.stales == 0 && counts.resident_bytes == 0);
    OK(superpage_validate(manager));
    OK(superpage_free(manager));
    printf("ok\n");
    return 0;
}
