//! The catalog's tables and every statement that runs against them.
//!
//! 1. Each statement of [`ALL`] finds its rows through a key or an index; a test holds them to it. Without statistics
//!    SQLite takes the directory's own key for a name's search and walks the directory: hence `INDEXED BY`.
//! 2. Unsigned 64-bit values are stored as SQLite's signed ones; all but device numbers are below 2^63.

/// The format of a new catalog.
pub(super) const FIRST_VERSION: u32 = 1;
/// The format of a catalog whose inodes may have flags.
pub(super) const FLAGS_VERSION: u32 = 2;
/// The format of a catalog with a log in front of it.
pub(super) const LOG_VERSION: u32 = 3;
/// The format of a catalog with snapshots.
pub(super) const SNAPSHOTS_VERSION: u32 = 4;
/// The format of a catalog whose log may say only what is new in a map, and the newest format this program reads.
pub(super) const VERSION: u32 = 5;

pub(super) const META_VERSION: &str = "format-version";
pub(super) const META_HASH_KEY: &str = "name-hash-key";
pub(super) const META_COUNTERS: &str = "counters";
/// There where an inode has, or once had, flags.
pub(super) const META_FLAGS: &str = "file-flags";
/// There where a log is in front of the catalog: what its first record names, random with each commit.
pub(super) const META_ANCHOR: &str = "log-anchor";

/// First cookie of a directory entry: those below are for `.`, `..` and the caller of the listing.
pub(super) const FIRST_COOKIE: u64 = 16;

pub(super) const TABLES: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE inodes (
    no INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    nlink INTEGER NOT NULL,
    size INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    rdev INTEGER NOT NULL,
    atime_s INTEGER NOT NULL,
    atime_ns INTEGER NOT NULL,
    mtime_s INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_s INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    btime_s INTEGER NOT NULL,
    btime_ns INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    has_xattrs INTEGER NOT NULL,
    target BLOB NOT NULL
) STRICT;

CREATE INDEX inode_orphans ON inodes (no) WHERE nlink = 0;

CREATE TABLE entries (
    parent INTEGER NOT NULL,
    cookie INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    name BLOB NOT NULL,
    inode INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    PRIMARY KEY (parent, cookie)
) STRICT, WITHOUT ROWID;

CREATE INDEX entry_names ON entries (parent, hash);

CREATE TABLE xattrs (
    inode INTEGER NOT NULL,
    name BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (inode, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunks (
    inode INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    extents BLOB NOT NULL,
    PRIMARY KEY (inode, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE segments (
    no INTEGER PRIMARY KEY,
    key_epoch INTEGER NOT NULL,
    salt BLOB NOT NULL,
    length INTEGER NOT NULL,
    live INTEGER NOT NULL
) STRICT;

CREATE TABLE shared (
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL,
    refs INTEGER NOT NULL,
    PRIMARY KEY (segment, position)
) STRICT, WITHOUT ROWID;
";

/// Created with the first answer that is kept: only rooms that are served have it.
pub(super) const REPLIES_TABLE: &str = "
CREATE TABLE replies (
    client BLOB NOT NULL,
    slot INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    answer BLOB NOT NULL,
    PRIMARY KEY (client, slot)
) STRICT, WITHOUT ROWID;
";

/// Declares the statements and the list of them all.
macro_rules! statements {
    ($($name:ident = $sql:expr;)*) => {
        $(pub(in crate::sql) const $name: &str = $sql;)*
        #[cfg(test)]
        pub(in crate::sql) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

macro_rules! inode_columns {
    () => {
        "i.no, i.kind, i.mode, i.uid, i.gid, i.nlink, i.size, i.blocks, i.rdev, i.atime_s, i.atime_ns, \
         i.mtime_s, i.mtime_ns, i.ctime_s, i.ctime_ns, i.btime_s, i.btime_ns, i.parent, i.has_xattrs, i.target"
    };
}

pub(super) mod past;

/// Number of columns of an inode: those of an entry come behind them.
pub(super) const INODE_COLUMNS: usize = 20;

statements! {
    INODE = concat!("SELECT ", inode_columns!(), " FROM inodes i WHERE no = ?1");
    LOOKUP = concat!("SELECT ", inode_columns!(), ", e.inode FROM entries e INDEXED BY entry_names LEFT JOIN inodes i ON i.no = e.inode \
        WHERE e.parent = ?1 AND e.hash = ?2 AND e.name = ?3");
    ENTRIES = "SELECT cookie, name, inode, kind FROM entries WHERE parent = ?1 AND cookie > ?2 \
        ORDER BY cookie LIMIT ?3";
    ENTRIES_PLUS = concat!("SELECT ", inode_columns!(), ", e.cookie, e.name, e.inode, e.kind FROM entries e \
        LEFT JOIN inodes i ON i.no = e.inode WHERE e.parent = ?1 AND e.cookie > ?2 ORDER BY e.cookie LIMIT ?3");
    ANY_ENTRY = "SELECT 1 FROM entries WHERE parent = ?1 LIMIT 1";
    XATTR = "SELECT value FROM xattrs WHERE inode = ?1 AND name = ?2";
    XATTR_NAMES = "SELECT name FROM xattrs WHERE inode = ?1 ORDER BY name";
    CHUNK = "SELECT extents FROM chunks WHERE inode = ?1 AND idx = ?2";
    CHUNKS_FROM = "SELECT idx, extents FROM chunks WHERE inode = ?1 AND idx >= ?2 ORDER BY idx LIMIT ?3";
    LAST_CHUNKS = "SELECT idx, extents FROM chunks WHERE inode = ?1 AND idx >= ?2 ORDER BY idx DESC LIMIT ?3";
    SHARED = "SELECT refs FROM shared WHERE segment = ?1 AND position = ?2";
    ORPHANS = "SELECT no FROM inodes INDEXED BY inode_orphans WHERE nlink = 0 ORDER BY no";
    ALL_CHUNKS = "SELECT inode, idx, extents FROM chunks WHERE (inode, idx) > (?1, ?2) ORDER BY inode, idx LIMIT ?3";
    ALL_INODES = concat!("SELECT ", inode_columns!(), " FROM inodes i WHERE no > ?1 ORDER BY no LIMIT ?2");
    ALL_ENTRIES = "SELECT parent, cookie, name, inode, kind FROM entries WHERE (parent, cookie) > (?1, ?2) \
        ORDER BY parent, cookie LIMIT ?3";
    LAST_INODE = "SELECT no FROM inodes ORDER BY no DESC LIMIT 1";
    META = "SELECT value FROM meta WHERE key = ?1";
    REPLIES = "SELECT slot, sequence, answer FROM replies WHERE client = ?1 ORDER BY slot";
    NEXT_CLIENT = "SELECT client FROM replies WHERE client > ?1 ORDER BY client LIMIT 1";

    INSERT_INODE = "INSERT INTO inodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, \
        ?16, ?17, ?18, ?19, ?20)";
    UPDATE_INODE = "UPDATE inodes SET kind = ?2, mode = ?3, uid = ?4, gid = ?5, nlink = ?6, size = ?7, blocks = ?8, \
        rdev = ?9, atime_s = ?10, atime_ns = ?11, mtime_s = ?12, mtime_ns = ?13, ctime_s = ?14, ctime_ns = ?15, \
        btime_s = ?16, btime_ns = ?17, parent = ?18, has_xattrs = ?19, target = ?20 WHERE no = ?1";
    DELETE_INODE = "DELETE FROM inodes WHERE no = ?1";
    DELETE_XATTRS = "DELETE FROM xattrs WHERE inode = ?1";
    DELETE_CHUNKS = "DELETE FROM chunks WHERE inode = ?1";
    POINT_ENTRY = "UPDATE entries INDEXED BY entry_names SET inode = ?4, kind = ?5 WHERE parent = ?1 AND hash = ?2 AND name = ?3";
    RENAME_ENTRY = "UPDATE entries INDEXED BY entry_names SET hash = ?4, name = ?5 WHERE parent = ?1 AND hash = ?2 AND name = ?3";
    INSERT_ENTRY = "INSERT INTO entries (parent, cookie, hash, name, inode, kind) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    DELETE_ENTRY = "DELETE FROM entries INDEXED BY entry_names WHERE parent = ?1 AND hash = ?2 AND name = ?3";
    PUT_XATTR = "INSERT INTO xattrs (inode, name, value) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET value = excluded.value";
    DELETE_XATTR = "DELETE FROM xattrs WHERE inode = ?1 AND name = ?2";
    PUT_CHUNK = "INSERT INTO chunks (inode, idx, extents) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET extents = excluded.extents";
    DELETE_CHUNK = "DELETE FROM chunks WHERE inode = ?1 AND idx = ?2";
    PUT_SEGMENT = "INSERT INTO segments (no, key_epoch, salt, length, live) VALUES (?1, ?2, ?3, ?4, ?5) \
        ON CONFLICT DO UPDATE SET key_epoch = excluded.key_epoch, salt = excluded.salt, length = excluded.length, \
        live = excluded.live";
    DELETE_SEGMENT = "DELETE FROM segments WHERE no = ?1";
    PUT_SHARED = "INSERT INTO shared (segment, position, refs) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET refs = excluded.refs";
    ADD_SHARED = "INSERT INTO shared (segment, position, refs) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET refs = refs + excluded.refs";
    DELETE_SHARED = "DELETE FROM shared WHERE segment = ?1 AND position = ?2";
    PUT_META = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value";
    PUT_REPLY = "INSERT INTO replies (client, slot, sequence, answer) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET sequence = excluded.sequence, answer = excluded.answer";
    DELETE_REPLIES = "DELETE FROM replies WHERE client = ?1";
}

// Whole small tables, read when a room is opened or checked.
pub(super) const SEGMENTS: &str =
    "SELECT no, key_epoch, salt, length, live FROM segments ORDER BY no";
pub(super) const ALL_REPLIES: &str = "SELECT client, slot, sequence, answer FROM replies";
pub(super) const HAS_REPLIES: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'replies'";
pub(super) const ALL_SHARED: &str =
    "SELECT segment, position, refs FROM shared ORDER BY segment, position";
