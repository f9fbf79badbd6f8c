//! The tables of snapshots and every statement that runs against them.
//!
//! They are created with the first snapshot; a room that never had one is without them.

/// There where a snapshot is, or once was: the highest number that one had, as eight bytes in little-endian order.
pub(in crate::sql) const META_SNAPSHOTS: &str = "snapshots";

pub(in crate::sql) const TABLES: &str = "
CREATE TABLE snapshots (
    no INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    created_s INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    automatic INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    next_inode INTEGER NOT NULL,
    next_cookie INTEGER NOT NULL
) STRICT;

CREATE TABLE past_inodes (
    no INTEGER NOT NULL,
    until INTEGER NOT NULL,
    inode BLOB,
    PRIMARY KEY (no, until)
) STRICT, WITHOUT ROWID;

CREATE INDEX past_inodes_until ON past_inodes (until, no);

CREATE TABLE past_entries (
    parent INTEGER NOT NULL,
    cookie INTEGER NOT NULL,
    until INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    name BLOB NOT NULL,
    inode INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    PRIMARY KEY (parent, cookie, until)
) STRICT, WITHOUT ROWID;

CREATE INDEX past_entry_names ON past_entries (parent, hash);
CREATE INDEX past_entries_until ON past_entries (until, parent, cookie);

CREATE TABLE past_xattrs (
    inode INTEGER NOT NULL,
    name BLOB NOT NULL,
    until INTEGER NOT NULL,
    value BLOB,
    PRIMARY KEY (inode, name, until)
) STRICT, WITHOUT ROWID;

CREATE INDEX past_xattrs_until ON past_xattrs (until, inode, name);

CREATE TABLE past_chunks (
    inode INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    until INTEGER NOT NULL,
    kept BLOB NOT NULL,
    PRIMARY KEY (inode, idx, until)
) STRICT, WITHOUT ROWID;

CREATE INDEX past_chunks_until ON past_chunks (until, inode, idx);

CREATE TABLE snapshot_space (
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    PRIMARY KEY (since, until)
) STRICT, WITHOUT ROWID;
";

statements! {
    // Keeping what is about to change. ?2 or ?3 is the newest snapshot.
    KEEP_INODE = "INSERT INTO past_inodes (no, until, inode) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    ENTRY_BY_NAME = "SELECT cookie, inode, kind FROM entries INDEXED BY entry_names WHERE parent = ?1 AND hash = ?2 AND name = ?3";
    KEEP_ENTRY = "INSERT INTO past_entries (parent, cookie, until, hash, name, inode, kind) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
    KEEP_XATTR = "INSERT INTO past_xattrs (inode, name, until, value) \
        VALUES (?1, ?2, ?3, (SELECT value FROM xattrs WHERE inode = ?1 AND name = ?2)) ON CONFLICT DO NOTHING";
    KEEP_XATTRS = "INSERT INTO past_xattrs (inode, name, until, value) \
        SELECT inode, name, ?2, value FROM xattrs WHERE inode = ?1 ON CONFLICT DO NOTHING";
    XATTR_BYTES = "SELECT coalesce(sum(length(value)), 0) FROM xattrs WHERE inode = ?1";
    KEEP_CHUNK = "INSERT INTO past_chunks (inode, idx, until, kept) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET kept = excluded.kept";
    DROP_CHUNK = "DELETE FROM past_chunks WHERE inode = ?1 AND idx = ?2 AND until = ?3";

    // Reading in a snapshot.
    PAST_INODE = "SELECT inode FROM past_inodes WHERE no = ?1 AND until >= ?2 ORDER BY until LIMIT 1";
    PAST_LOOKUP = "SELECT p.inode FROM past_entries p INDEXED BY past_entry_names \
        WHERE p.parent = ?1 AND p.hash = ?2 AND p.name = ?3 AND p.until >= ?4 AND p.cookie < ?5 \
        AND NOT EXISTS (SELECT 1 FROM past_entries q WHERE q.parent = p.parent AND q.cookie = p.cookie \
        AND q.until >= ?4 AND q.until < p.until)";
    LIVE_LOOKUP = "SELECT e.inode FROM entries e INDEXED BY entry_names \
        WHERE e.parent = ?1 AND e.hash = ?2 AND e.name = ?3 AND e.cookie < ?5 \
        AND NOT EXISTS (SELECT 1 FROM past_entries p WHERE p.parent = e.parent AND p.cookie = e.cookie AND p.until >= ?4)";
    PAST_ENTRIES = "SELECT p.cookie, p.name, p.inode, p.kind FROM past_entries p \
        WHERE p.parent = ?1 AND p.cookie > ?2 AND p.cookie < ?3 AND p.until >= ?4 \
        AND NOT EXISTS (SELECT 1 FROM past_entries q WHERE q.parent = p.parent AND q.cookie = p.cookie \
        AND q.until >= ?4 AND q.until < p.until) ORDER BY p.cookie LIMIT ?5";
    LIVE_ENTRIES = "SELECT e.cookie, e.name, e.inode, e.kind FROM entries e \
        WHERE e.parent = ?1 AND e.cookie > ?2 AND e.cookie < ?3 \
        AND NOT EXISTS (SELECT 1 FROM past_entries p WHERE p.parent = e.parent AND p.cookie = e.cookie AND p.until >= ?4) \
        ORDER BY e.cookie LIMIT ?5";
    // The live names that are not younger, whatever is kept of them, with their inodes as they are.
    LIVE_ENTRIES_PLUS = concat!("SELECT ", inode_columns!(), ", e.cookie, e.name, e.inode, e.kind FROM entries e \
        LEFT JOIN inodes i ON i.no = e.inode WHERE e.parent = ?1 AND e.cookie > ?2 AND e.cookie < ?3 ORDER BY e.cookie LIMIT ?4");
    PAST_INODES = "SELECT no, until, inode FROM past_inodes WHERE no >= ?1 AND no <= ?2 ORDER BY no, until LIMIT ?3";
    PAST_ENTRY = "SELECT cookie, name, inode, kind FROM past_entries WHERE parent = ?1 AND cookie = ?2 AND until >= ?3 \
        ORDER BY until LIMIT 1";
    LIVE_ENTRY = "SELECT cookie, name, inode, kind FROM entries WHERE parent = ?1 AND cookie = ?2";
    LIVE_NUMBERS = "SELECT no FROM inodes WHERE no >= ?1 AND no < ?2 ORDER BY no LIMIT ?3";
    PAST_NUMBERS = "SELECT DISTINCT no FROM past_inodes WHERE no >= ?1 AND no < ?2 ORDER BY no LIMIT ?3";
    PAST_XATTR = "SELECT value FROM past_xattrs WHERE inode = ?1 AND name = ?2 AND until >= ?3 ORDER BY until LIMIT 1";
    PAST_XATTR_NAMES = "SELECT p.name FROM past_xattrs p WHERE p.inode = ?1 AND p.until >= ?2 AND p.value IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM past_xattrs q WHERE q.inode = p.inode AND q.name = p.name \
        AND q.until >= ?2 AND q.until < p.until)";
    LIVE_XATTR_NAMES = "SELECT x.name FROM xattrs x WHERE x.inode = ?1 \
        AND NOT EXISTS (SELECT 1 FROM past_xattrs p WHERE p.inode = x.inode AND p.name = x.name AND p.until >= ?2)";
    KEPT_CHUNK = "SELECT kept FROM past_chunks WHERE inode = ?1 AND idx = ?2 AND until = ?3";
    KEPT_BETWEEN = "SELECT until, kept FROM past_chunks WHERE inode = ?1 AND idx = ?2 AND until >= ?3 AND until < ?4 ORDER BY until DESC";
    NEXT_CHUNK = "SELECT idx FROM chunks WHERE inode = ?1 AND idx >= ?2 ORDER BY idx LIMIT 1";
    NEXT_KEPT = "SELECT idx FROM past_chunks WHERE inode = ?1 AND idx >= ?2 ORDER BY idx LIMIT 1";
    ALL_KEPT = "SELECT inode, idx, until, kept FROM past_chunks WHERE (inode, idx, until) > (?1, ?2, ?3) \
        ORDER BY inode, idx, until LIMIT ?4";
    KEPT_UNTIL = "SELECT inode, idx, until, kept FROM past_chunks INDEXED BY past_chunks_until \
        WHERE until = ?1 AND (inode, idx) > (?2, ?3) ORDER BY inode, idx LIMIT ?4";

    // What changed between two snapshots.
    INODES_AFTER = "SELECT no FROM past_inodes INDEXED BY past_inodes_until WHERE until = ?1 AND no > ?2 ORDER BY no LIMIT ?3";
    ENTRIES_AFTER = "SELECT parent, cookie FROM past_entries INDEXED BY past_entries_until \
        WHERE until = ?1 AND (parent, cookie) > (?2, ?3) ORDER BY parent, cookie LIMIT ?4";
    XATTRS_AFTER = "SELECT inode, name FROM past_xattrs INDEXED BY past_xattrs_until \
        WHERE until = ?1 AND (inode, name) > (?2, ?3) ORDER BY inode, name LIMIT ?4";

    // Snapshots, and their deletion. ?2 or ?3 is the deleted one, the last parameter the one before.
    INSERT_SNAPSHOT = "INSERT INTO snapshots (no, name, created_s, created_ns, automatic, deleted, next_inode, next_cookie) \
        VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7)";
    RENAME_SNAPSHOT = "UPDATE snapshots SET name = ?2 WHERE no = ?1";
    DOOM_SNAPSHOT = "UPDATE snapshots SET deleted = 1 WHERE no = ?1";
    DELETE_SNAPSHOT = "DELETE FROM snapshots WHERE no = ?1";
    INODES_UNTIL = "SELECT no FROM past_inodes INDEXED BY past_inodes_until WHERE until = ?1 ORDER BY no LIMIT ?2";
    MOVE_INODE = "UPDATE past_inodes SET until = ?3 WHERE no = ?1 AND until = ?2 \
        AND NOT EXISTS (SELECT 1 FROM past_inodes WHERE no = ?1 AND until = ?3)";
    DROP_INODE = "DELETE FROM past_inodes WHERE no = ?1 AND until = ?2";
    ENTRIES_UNTIL = "SELECT parent, cookie FROM past_entries INDEXED BY past_entries_until WHERE until = ?1 \
        ORDER BY parent, cookie LIMIT ?2";
    MOVE_ENTRY = "UPDATE past_entries SET until = ?4 WHERE parent = ?1 AND cookie = ?2 AND until = ?3 \
        AND NOT EXISTS (SELECT 1 FROM past_entries WHERE parent = ?1 AND cookie = ?2 AND until = ?4)";
    DROP_ENTRY = "DELETE FROM past_entries WHERE parent = ?1 AND cookie = ?2 AND until = ?3";
    XATTRS_UNTIL = "SELECT inode, name, coalesce(length(value), 0) FROM past_xattrs INDEXED BY past_xattrs_until WHERE until = ?1 \
        ORDER BY inode, name LIMIT ?2";
    MOVE_XATTR = "UPDATE past_xattrs SET until = ?4 WHERE inode = ?1 AND name = ?2 AND until = ?3 \
        AND NOT EXISTS (SELECT 1 FROM past_xattrs WHERE inode = ?1 AND name = ?2 AND until = ?4)";
    DROP_XATTR = "DELETE FROM past_xattrs WHERE inode = ?1 AND name = ?2 AND until = ?3";
    ANY_CHUNK_UNTIL = "SELECT 1 FROM past_chunks INDEXED BY past_chunks_until WHERE until = ?1 LIMIT 1";

    COUNT_SPACE = "INSERT INTO snapshot_space (since, until, blocks) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET blocks = blocks + excluded.blocks";
    DROP_SPACE = "DELETE FROM snapshot_space WHERE since = ?1 AND until = ?2 AND blocks = 0";
    SPACE_SINCE = "SELECT until, blocks FROM snapshot_space WHERE since = ?1 ORDER BY until";
    DROP_SPACE_SINCE = "DELETE FROM snapshot_space WHERE since = ?1";
}

// Whole tables.
pub(in crate::sql) const SNAPSHOTS: &str = "SELECT no, name, created_s, created_ns, automatic, deleted, next_inode, next_cookie \
     FROM snapshots ORDER BY no";
pub(in crate::sql) const SPACE: &str =
    "SELECT since, until, blocks FROM snapshot_space ORDER BY since, until";
