//! What every command takes.

use clap::{ArgAction, Args};

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Report as JSON, with stable field names
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more of what is going on; twice for more still
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}
