//! What a history has broken and reached: ghosts, which properties read.

/// Which properties a history has broken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) forged: bool,
    pub(crate) repeated: bool,
    pub(crate) late: bool,
    pub(crate) after_revocation: bool,
    pub(crate) managed: bool,
    pub(crate) overtaken: bool,
    pub(crate) misread: bool,
    pub(crate) seen: bool,
    pub(crate) learnt: bool,
}

/// What a history has reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reached {
    pub(crate) write_after_restart: bool,
    pub(crate) read: bool,
}
