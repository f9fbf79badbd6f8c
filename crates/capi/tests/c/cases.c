/* The cases, in the order of tests/contract/cases.tsv. */
#include "contract.h"

#define CASES(CASE) \
    CASE(create_write_read) \
    CASE(getattr_create_truncate) \
    CASE(write_read_sizes) \
    CASE(read_single_bytes) \
    CASE(read_beyond_end) \
    CASE(read_bigger_than_file) \
    CASE(truncate_down) \
    CASE(truncate_up) \
    CASE(truncate_sparse) \
    CASE(write_block_boundaries) \
    CASE(write_across_boundaries) \
    CASE(write_gaps) \
    CASE(write_empty) \
    CASE(append) \
    CASE(append_new) \
    CASE(seek) \
    CASE(positional_io) \
    CASE(open_missing) \
    CASE(create_existing) \
    CASE(create_truncate_new) \
    CASE(create_truncate_existing) \
    CASE(create_exclusive) \
    CASE(open_directory) \
    CASE(read_only_handle) \
    CASE(unlink_open) \
    CASE(unlink_directory) \
    CASE(mkdir) \
    CASE(mkdir_nested) \
    CASE(mkdir_missing_parents) \
    CASE(mkdir_all) \
    CASE(mkdir_below_file) \
    CASE(rmdir) \
    CASE(rmdir_not_empty) \
    CASE(list) \
    CASE(list_many) \
    CASE(rename_file) \
    CASE(rename_file_onto_file) \
    CASE(rename_dir_onto_empty_dir) \
    CASE(rename_dir_onto_full_dir) \
    CASE(rename_file_onto_dir) \
    CASE(rename_no_replace) \
    CASE(rename_into_itself) \
    CASE(rename_dir_with_children) \
    CASE(names_special) \
    CASE(names_unicode) \
    CASE(names_long) \
    CASE(paths_odd) \
    CASE(symlink) \
    CASE(symlink_loop) \
    CASE(hard_link) \
    CASE(attributes) \
    CASE(xattrs) \
    CASE(open_wrong_passphrase) \
    CASE(open_wrong_raw_key) \
    CASE(open_not_a_room) \
    CASE(create_existing_room) \
    CASE(change_key_open) \
    CASE(change_key_closed) \
    CASE(add_remove_key) \
    CASE(room_info) \
    CASE(threads_own_files) \
    CASE(threads_one_file) \
    CASE(threads_append) \
    CASE(threads_open_close) \
    CASE(transaction_complete) \
    CASE(transaction_nested) \
    CASE(transaction_close) \
    CASE(transaction_killed) \
    CASE(sync_survives_kill) \
    CASE(damaged_segment) \
    CASE(damaged_catalog) \
    CASE(damaged_header) \
    CASE(closed_file) \
    CASE(closed_room) \
    CASE(close_room_with_files_open) \
    CASE(close_room_while_used) \
    CASE(handle_two_threads) \
    CASE(handle_never_existed) \
    CASE(exit_with_room_open) \
    CASE(fork) \
    CASE(second_opener) \
    CASE(read_only_room) \
    CASE(disk_full) \
    CASE(errors_have_text) \
    CASE(big_io) \
    CASE(snapshot_read) \
    CASE(snapshot_names) \
    CASE(snapshot_deleted) \
    CASE(snapshot_closed) \
    CASE(snapshot_read_only) \
    CASE(snapshot_diff) \
    CASE(snapshot_restore) \
    CASE(snapshot_threads) \
    CASE(snapshot_policy) \
    CASE(snapshot_policy_apply)

#define DECLARE(id) void case_##id(void);
CASES(DECLARE)

#define ROW(id) {#id, case_##id},
const named cases[] = {CASES(ROW){NULL, NULL}};
