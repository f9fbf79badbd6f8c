//! What every command takes.

use clap::{ArgAction, Args};

use crate::confinement::Confinement;

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
    /// Confine parsers: auto (default), required, off
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "MODE",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub confinement: Confinement,
}
