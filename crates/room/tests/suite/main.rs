//! What a room promises, over real and faulty storage; what needs a process of its own is beside this.
//!
//! One program, because each is linked with everything under it.

#![allow(missing_docs)]

mod answers;
mod basics;
#[path = "../common/mod.rs"]
mod common;
mod flags;
mod full;
mod full_log;
mod golden;
mod grants;
mod holes;
mod hostile;
mod log;
mod maintenance;
mod maintenance_damage;
mod model;
mod no_reserve;
mod quotas;
mod removed;
mod replica;
mod replica_keep;
mod snapshots;
mod snapshots_crash;
mod snapshots_maintenance;
mod snapshots_model;
mod snapshots_policy;
mod snapshots_threads;
mod storage_faults;
mod threads;
mod transactions;
