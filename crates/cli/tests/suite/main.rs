//! The program as people run it; what runs for minutes, or is measured by its memory, is beside this.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod backup;
mod bench;
mod bench_own_stores;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod disk_in_bucket;
mod disks;
mod docs;
mod errors;
mod examples;
mod hints;
mod import;
mod mounted;
mod moves;
mod places;
mod plugins;
mod progress;
mod replicas;
mod replicate;
mod replicate_bucket;
mod serve_nbd;
mod snapshots;
mod sockets;
mod storage;
mod tpm;
mod unmounted;
mod volumes;
