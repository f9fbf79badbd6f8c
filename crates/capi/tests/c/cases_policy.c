/* Policies for automatic snapshots. */
#include "contract.h"

static strongroom_snapshot_policy weekly(uint32_t min_free_percent)
{
    return (strongroom_snapshot_policy){.size = sizeof(strongroom_snapshot_policy),
                                        .weekly = 5,
                                        .min_free_percent = min_free_percent};
}

void case_snapshot_policy(void)
{
    strongroom_room room = make_room();
    strongroom_options options;
    strongroom_key key = raw_key(1);
    strongroom_snapshot_policy shown = {.size = sizeof shown}, policy = weekly(10);
    strongroom_policy_report report;
    REFUSED(NOT_FOUND, strongroom_snapshot_policy_get(room, &shown));
    REFUSED(NOT_FOUND, strongroom_snapshot_prune(room, 0, NULL, 0));
    OK(strongroom_snapshot_policy_apply(room, &report));
    CHECK(report.created == 0 && report.deleted == 0 && report.next_due.secs == -1);
    policy.weekly = 0;
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_policy_set(room, &policy));
    policy = weekly(100);
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_policy_set(room, &policy));
    policy = weekly(300);
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_policy_set(room, &policy));
    policy = weekly(10);
    policy.size--;
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_policy_set(room, &policy));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_policy_set(room, NULL));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_policy_get(room, NULL));
    policy = weekly(10);
    OK(strongroom_snapshot_policy_set(room, &policy));
    REFUSED(INVALID_ARGUMENT, strongroom_snapshot_prune(room, 0, NULL, 1));
    OK(strongroom_close(room));

    OK(strongroom_options_init(&options));
    options.read_only = 1;
    OK(strongroom_open("room", &key, &options, &room));
    OK(strongroom_snapshot_policy_get(room, &shown));
    CHECK(shown.hourly == 0 && shown.daily == 0 && shown.weekly == 5 && shown.min_free_percent == 10);
    IS(0, strongroom_snapshot_prune(room, 1, NULL, 0));
    REFUSED(READ_ONLY, strongroom_snapshot_policy_set(room, &policy));
    REFUSED(READ_ONLY, strongroom_snapshot_policy_clear(room));
    REFUSED(READ_ONLY, strongroom_snapshot_policy_apply(room, &report));
    REFUSED(READ_ONLY, strongroom_snapshot_prune(room, 0, NULL, 0));
    room = again(room);
    OK(strongroom_snapshot_policy_clear(room));
    OK(strongroom_snapshot_policy_clear(room));
    REFUSED(NOT_FOUND, strongroom_snapshot_policy_get(room, &shown));
    IS(0, strongroom_snapshot_list(room, NULL, 0));
    OK(strongroom_close(room));
}

static bool has_snapshot(strongroom_room room, uint64_t number)
{
    strongroom_snapshot all[8];
    int64_t count = strongroom_snapshot_list(room, all, 8);
    CHECK(count >= 0 && count <= 8);
    for (int64_t i = 0; i < count; i++) {
        if (all[i].number == number) {
            return true;
        }
    }
    return false;
}

void case_snapshot_policy_apply(void)
{
    static const unsigned char big[MIB] = {1};
    strongroom_room room = make_room();
    strongroom_snapshot all[4];
    strongroom_snapshot_policy policy = weekly(0);
    strongroom_policy_report first, second;
    strongroom_space space;
    put(room, "/big", big, sizeof big);
    OK(strongroom_snapshot_policy_set(room, &policy));
    OK(strongroom_snapshot_policy_apply(room, &first));
    IS(1, strongroom_snapshot_list(room, all, 4));
    CHECK(all[0].number == first.created && all[0].automatic && strncmp(all[0].name, "auto-", 5) == 0);
    CHECK(first.deleted == 0 && first.next_due.secs > all[0].created.secs);
    OK(strongroom_snapshot_policy_apply(room, &second));
    CHECK(second.created == 0 || second.next_due.secs > first.next_due.secs);
    OK(strongroom_snapshot_policy_apply(room, NULL));
    OK(strongroom_unlink(room, "/big"));
    OK(strongroom_snapshot_create(room, "mine"));
    OK(strongroom_begin(room));
    REFUSED(BUSY, strongroom_snapshot_policy_apply(room, NULL));
    REFUSED(BUSY, strongroom_snapshot_prune(room, 0, NULL, 0));
    OK(strongroom_complete(room));
    IS(0, strongroom_snapshot_prune(room, 0, NULL, 0));

    OK(strongroom_get_space(room, &space));
    if (space.available / 99 < space.total / 100) {
        policy = weekly(99);
        OK(strongroom_snapshot_policy_set(room, &policy));
        CHECK(strongroom_snapshot_prune(room, 1, all, 4) >= 1);
        CHECK(all[0].number == first.created && all[0].exclusive == MIB);
        CHECK(has_snapshot(room, first.created));
        OK(strongroom_snapshot_policy_apply(room, &second));
        CHECK(second.created == 0 && second.deleted >= 1);
        CHECK(!has_snapshot(room, first.created));
    }
    int64_t count = strongroom_snapshot_list(room, all, 4);
    CHECK(count >= 1 && strcmp(all[count - 1].name, "mine") == 0);
    OK(strongroom_close(room));
}
