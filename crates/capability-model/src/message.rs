//! What goes over the network. Fields below a line "ghost" are not part of a message: properties need them.

/// Who is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Who {
    Server,
    Alice,
    Eve,
}

/// What a capability allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Read,
    Both,
}

/// Who may do what to which block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) client: Who,
    pub(crate) mode: Mode,
    pub(crate) block: u8,
}

/// Alice works with block 0. Eve may read it, and write block 1.
pub(crate) const GRANTS: [Grant; 3] = [
    Grant {
        client: Who::Alice,
        mode: Mode::Both,
        block: 0,
    },
    Grant {
        client: Who::Eve,
        mode: Mode::Read,
        block: 0,
    },
    Grant {
        client: Who::Eve,
        mode: Mode::Both,
        block: 1,
    },
];

/// The last time at which a capability is valid.
pub(crate) const EXPIRES: u8 = 0;

/// A capability: a grant, as issued in a group. The grant is also its revocation bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Capability {
    pub(crate) grant: u8,
    pub(crate) group: u8,
}

impl Capability {
    pub(crate) fn grant(self) -> Grant {
        GRANTS[usize::from(self.grant)]
    }
}

/// A key of MACs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Management,
    Secret(Capability),
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Order {
    Read {
        block: u8,
    },
    /// `value` is the payload that the tag in the head is of.
    Write {
        block: u8,
        value: u8,
    },
    SetGroup(u8),
    Revoke(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) capability: Option<Capability>,
    pub(crate) boot: u8,
    pub(crate) epoch: u8,
    /// The disk's, of what sets groups; 0 of all else.
    pub(crate) sequence: u8,
    pub(crate) nonce: u8,
    pub(crate) order: Order,
    pub(crate) payload: u8,
    /// What the MAC of the head was made with; `None` is noise.
    pub(crate) mac: Option<Key>,
    // Ghost.
    pub(crate) author: Who,
    /// The disk's boot and epoch when it was signed.
    pub(crate) signed_in: (u8, u8),
}

/// What a reply says. Other refusals end a call and are not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Done,
    Value(u8),
    StaleBoot,
    StaleEpoch,
    OutOfSequence(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reply {
    pub(crate) nonce: u8,
    pub(crate) mac: Option<Key>,
    pub(crate) boot: u8,
    pub(crate) epoch: u8,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    Request(Request),
    Reply(Reply),
}

/// A message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    /// In a connection of TLS: Eve can hold it back, and neither read, change nor repeat it.
    pub(crate) in_tls: bool,
    pub(crate) body: Body,
}
