//! Where it was measured, and on what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// A number for this machine that distinguishes it from others and reveals nothing about it: a digest of `/etc/machine-id`.
    pub id: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor's model name.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: u32,
    /// Instructions that matter to ciphers, as in "aes", "vaes", "sha_ni".
    pub features: Vec<String>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Frequency governor, if the kernel reports it.
    pub governor: Option<String>,
    /// Whether it is known to be a virtual machine.
    pub virtual_machine: bool,
}

/// A store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoreFacts {
    /// Its name in this report: short, and no other store's.
    pub label: String,
    /// What it is: "directory", "file", "block device", "room", "mounted room", "gocryptfs", ….
    pub kind: String,
    /// What was given on the command line.
    pub target: String,
    /// File system beneath, as in "ext4".
    pub file_system: Option<String>,
    /// Its mount options.
    pub mount_options: Option<String>,
    /// Block device beneath, as in "vda", with its model where the kernel reports it.
    pub device: Option<String>,
    /// Cipher, as in "AES-256-GCM", if it encrypts and we know.
    pub cipher: Option<String>,
    /// Version of what serves it.
    pub version: Option<String>,
    /// By what requests come from the kernel to the process that serves it, if we know: "device" (`/dev/fuse`) or "io_uring".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
}
