/* Each way to call the manager wrongly has its code and a message. */
#include "superpage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(call, code) expect(call, code, #call, __LINE__)

static void expect(int got, int wanted, const char *call, int line) {
    if (got != wanted || (wanted != SUPERPAGE_OK && strlen(superpage_message()) < 10)) {
        printf("line %d: %s: %d, not %d: %s\n", line, call, got, wanted, superpage_message());
        exit(1);
    }
}

static void said(const char *part) {
    if (!strstr(superpage_message(), part)) {
        printf("\"%s\" is not in \"%s\"\n", part, superpage_message());
        exit(1);
    }
}

static superpage *manager;

/* A callback that calls the manager. */
static void again(void *context, uint32_t space, const struct superpage_mapping *mapping) {
    uint32_t made;
    (void)space, (void)mapping;
    EXPECT(superpage_create(manager, &made), SUPERPAGE_BUSY);
    EXPECT(superpage_free(manager), SUPERPAGE_BUSY);
    ++*(int *)context;
}

static uint32_t leave(void *context, uint32_t space, const struct superpage_mapping *mapping) {
    (void)context, (void)space, (void)mapping;
    return 0;
}

static uint32_t use(void *context, uint32_t space, const struct superpage_mapping *mapping, uint32_t clear) {
    (void)context, (void)space, (void)mapping, (void)clear;
    return 0;
}

int main(void) {
    static const char *const blind[] = {"pcc", "hybrid", "leshy", "romer", "emd", "thp:underused=on"};
    const uint64_t M = 1 << 20;
    int called = 0;
    uint32_t space, other;
    uint64_t next, frame;
    struct superpage_done done;
    struct superpage_mapping found;
    struct superpage_counts counts;
    struct superpage_calls calls = {0};
    struct superpage_config config = {16 * M, NULL, "reservation", &calls};
    calls.context = &called;
    calls.map = again, calls.unmap = leave, calls.use = use;

    if (strlen(superpage_message()) != 0) return 1;
    EXPECT(superpage_new(NULL, &manager), SUPERPAGE_NULL);
    EXPECT(superpage_new(&config, NULL), SUPERPAGE_NULL);
    EXPECT(superpage_free(NULL), SUPERPAGE_OK);
    EXPECT(superpage_create(NULL, &space), SUPERPAGE_NULL);
    said("manager is a null pointer");
    config.policy = NULL;
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_NULL);
    config.policy = "navarro";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    said("no policy is named `navarro`; the C interface has base, reservation");
    config.policy = "\xff";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.policy = "reservation:sizes=64K";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.policy = "plan:file=no/such";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.policy = "hugetlb:pool=1G";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    for (unsigned at = 0; at < sizeof blind / sizeof *blind; at++) {
        config.policy = blind[at];
        EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
        said("which the C interface does not have");
    }
    config.policy = "mthp:size=64K";
    config.sizes = "4K";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    said("policy mthp: extent size 64K must be above 4K and at most 4K");
    config.policy = "mthp:size=4M";
    config.sizes = "4K,2M";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    said("policy mthp: extent size 4M must be above 4K and at most 2M");
    config.policy = "reservation";
    config.sizes = "2M,4K";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.sizes = "4K,3M";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.sizes = "";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.sizes = "1,2";
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.sizes = "4K,2M";
    config.memory = 4095;
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.memory = UINT64_MAX;
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_VALUE);
    config.memory = 16 * M;
    calls.use = NULL;
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_NULL);
    said("give all or none");
    calls.map = NULL, calls.use = use;
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_NULL);
    calls.map = again;
    EXPECT(superpage_new(&config, &manager), SUPERPAGE_OK);

    EXPECT(superpage_create(manager, NULL), SUPERPAGE_NULL);
    EXPECT(superpage_create(manager, &space), SUPERPAGE_OK);
    EXPECT(superpage_map(manager, 7, M, M, 3), SUPERPAGE_NO_SPACE);
    EXPECT(superpage_map(manager, space, M + 1, M, 3), SUPERPAGE_VALUE);
    EXPECT(superpage_map(manager, space, M, 0, 3), SUPERPAGE_VALUE);
    EXPECT(superpage_map(manager, space, M, M, 8), SUPERPAGE_VALUE);
    EXPECT(superpage_map(manager, space, UINT64_MAX & ~4095ull, 8192, 3), SUPERPAGE_VALUE);
    EXPECT(superpage_map(manager, space, M, 2 * M, SUPERPAGE_READ), SUPERPAGE_OK);
    EXPECT(superpage_advise(manager, space, M, M, 3), SUPERPAGE_VALUE);
    EXPECT(superpage_advise(manager, space, M, M, SUPERPAGE_HINT_HUGE), SUPERPAGE_OK);
    EXPECT(superpage_translate(manager, space, M, NULL), SUPERPAGE_NULL);
    EXPECT(superpage_translate(manager, space, M, &found), SUPERPAGE_UNMAPPED);
    EXPECT(superpage_translate(manager, 7, M, &found), SUPERPAGE_NO_SPACE);
    EXPECT(superpage_fault(manager, space, M, 3, &done), SUPERPAGE_VALUE);
    EXPECT(superpage_fault(manager, space, M, SUPERPAGE_WRITE, &done), SUPERPAGE_PROTECTION);
    EXPECT(superpage_access(manager, space, UINT64_MAX, SUPERPAGE_READ, &done), SUPERPAGE_UNMAPPED);
    EXPECT(superpage_access(manager, 9, M, SUPERPAGE_READ, &done), SUPERPAGE_NO_SPACE);
    EXPECT(superpage_access(manager, space, M, SUPERPAGE_READ, &done), SUPERPAGE_OK);
    if (called != 1 || done.kind != SUPERPAGE_ZERO || done.mapping.address != M) return 2;
    EXPECT(superpage_access(manager, space, M + 5, SUPERPAGE_READ, &done), SUPERPAGE_OK);
    if (called != 1 || done.kind != SUPERPAGE_HIT) return 3;
    EXPECT(superpage_fork(manager, 8, &other), SUPERPAGE_NO_SPACE);
    EXPECT(superpage_exit(manager, 8), SUPERPAGE_NO_SPACE);
    EXPECT(superpage_unwire(manager, 0), SUPERPAGE_VALUE);
    EXPECT(superpage_unwire(manager, 3), SUPERPAGE_VALUE);
    EXPECT(superpage_tick(manager, 10, 0, &next), SUPERPAGE_OK);
    EXPECT(superpage_tick(manager, 9, 0, &next), SUPERPAGE_VALUE);
    while (superpage_wire(manager, &frame) == SUPERPAGE_OK) {}
    EXPECT(superpage_wire(manager, &frame), SUPERPAGE_NO_MEMORY);
    EXPECT(superpage_map(manager, space, 16 * M, M, 3), SUPERPAGE_OK);
    EXPECT(superpage_fault(manager, space, 16 * M, SUPERPAGE_WRITE, &done), SUPERPAGE_NO_MEMORY);
    EXPECT(superpage_get_counts(manager, NULL), SUPERPAGE_NULL);
    EXPECT(superpage_get_counts(manager, &counts), SUPERPAGE_OK);
    if (counts.faults != 1 || counts.faults_out_of_memory == 0 || counts.free_bytes != 0) return 4;
    EXPECT(superpage_validate(manager), SUPERPAGE_OK);
    EXPECT(superpage_free(manager), SUPERPAGE_OK);
    printf("ok\n");
    return 0;
}
