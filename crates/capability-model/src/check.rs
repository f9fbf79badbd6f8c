//! What can be removed from the protocol.

/// How messages are protected: `docs/netdisk.md`, "Three set-ups".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setup {
    /// MACs and tags; the network sees messages.
    Secure,
    /// The same messages, without tags of payloads, inside TLS 1.3.
    Private,
}

/// A rule of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// The disk refuses a request whose MAC does not hold (reason 8).
    RequestMac,
    /// The head's MAC covers the payload's tag (reason 12).
    PayloadTag,
    /// The disk refuses blocks that the capability does not cover (reason 10).
    Coverage,
    /// The disk refuses operations that the capability's mode does not allow (reason 9).
    Mode,
    /// The disk refuses a nonce that it has seen (reason 13).
    ReplayFilter,
    /// The disk refuses requests for another boot (reason 2).
    Boot,
    /// The disk refuses requests for neither the present epoch nor the one before (reason 3).
    Epoch,
    /// The disk refuses changes of the metadata server for another sequence than its own (reason 18).
    Sequence,
    /// The disk refuses groups that are not valid (reason 5).
    Group,
    /// The disk refuses revoked capabilities (reason 6).
    Revocation,
    /// The disk refuses expired capabilities (reason 7).
    Expiry,
    /// The disk's clock does not go back.
    SteadyClock,
    /// Group and revocation are looked at again in one step with counting the request as running.
    SecondLook,
    /// The disk answers a revocation only when nothing runs under what it revokes.
    Drain,
    /// After a restart of the disk the metadata server uses a group that was never valid.
    FreshGroup,
    /// The metadata server takes a capability as expired only when a request that began before its expiry has ended.
    ExpiryMargin,
    /// Requests of the metadata server have a key of their own.
    ManagementKey,
    /// A reply's MAC covers the request's nonce.
    ReplyNonce,
    /// Clients and metadata server accept signed replies only.
    SignedReplies,
    /// The metadata server hands out secrets of capabilities through TLS.
    SecretsInTls,
    /// In the private set-up: messages are inside TLS.
    MessagesInTls,
    /// In the private set-up: a client goes on only with the disk's certificate.
    Certificate,
}

impl Check {
    /// All that are part of a set-up.
    pub fn of(setup: Setup) -> Vec<Self> {
        let both = [
            Self::RequestMac,
            Self::PayloadTag,
            Self::Coverage,
            Self::Mode,
            Self::ReplayFilter,
            Self::Boot,
            Self::Epoch,
            Self::Sequence,
            Self::Group,
            Self::Revocation,
            Self::Expiry,
            Self::SteadyClock,
            Self::SecondLook,
            Self::Drain,
            Self::FreshGroup,
            Self::ExpiryMargin,
            Self::ManagementKey,
            Self::ReplyNonce,
            Self::SignedReplies,
            Self::SecretsInTls,
        ];
        let private = [Self::MessagesInTls, Self::Certificate];
        match setup {
            Setup::Secure => both.to_vec(),
            // Inside TLS payloads have no tag.
            Setup::Private => both
                .into_iter()
                .filter(|check| *check != Self::PayloadTag)
                .chain(private)
                .collect(),
        }
    }
}
