//! The limits of all checks, in one place.

/// From where on a check fires. Shares are of 1, so 0.01 is one per cent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Clocks may differ by this share of the time passed …
    pub clock_share: f64,
    /// … and this long besides, nanoseconds: readings are not of one instant.
    pub clock_slack_ns: i64,
    /// A clock that passes less than this share of what another passes has stopped.
    pub stalled_share: f64,
    /// Time and processor time this close are the same.
    pub processor_share: f64,
    /// Share of the time a device must be busy for the work to have waited for it.
    pub busy_share: f64,
    /// Bytes at the device may be this share less than those claimed.
    pub missing_share: f64,
    /// Pages of a file that may be cached before a cold read, as a share of the bytes to be read.
    pub warm_share: f64,
    /// Bytes of backing files that may be cached before a cold read: what must be read to open a room or to mount.
    pub opening_bytes: u64,
    /// A sync may take this share of the shortest that the device was seen to need.
    pub sync_share: f64,
    /// Bytes moved by others that are borne, as a share of the bytes the round moved at the device.
    pub foreign_share: f64,
    /// And besides, bytes.
    pub foreign_slack: u64,
    /// Time stolen by the host that is accepted, as a share of all processors' time.
    pub stolen_share: f64,
    /// Change of frequency that is borne.
    pub frequency_share: f64,
    /// Free space and inodes below which a store is nearly full.
    pub free_share: f64,
    /// How far a rate may be above the device's own measured one: that was measured at another moment.
    pub above_device: f64,
    /// How much faster zeros may go than data.
    pub zeros_share: f64,
    /// Shortest round, seconds.
    pub seconds_min: f64,
    /// Fewest operations in a round.
    pub operations_min: u64,
    /// Fewest valid rounds of a row.
    pub rounds_min: usize,
    /// Largest difference of a store from itself.
    pub noise_max: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clock_share: 0.01,
            clock_slack_ns: 200_000,
            stalled_share: 0.10,
            processor_share: 0.02,
            busy_share: 0.10,
            missing_share: 0.05,
            warm_share: 0.01,
            opening_bytes: 2 << 20,
            sync_share: 0.25,
            foreign_share: 0.10,
            foreign_slack: 1 << 20,
            stolen_share: 0.05,
            frequency_share: 0.10,
            free_share: 0.10,
            above_device: 1.25,
            zeros_share: 0.05,
            seconds_min: 0.1,
            operations_min: 16,
            rounds_min: 3,
            noise_max: 0.25,
        }
    }
}
