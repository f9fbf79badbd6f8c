//! `strongroom bench compare`: the same work on two or more stores, in turns.

use bench::store::labels;

use strongroom_cli::program::{CredentialArgs, Global, Result};

use super::{Common, Handling, Wanted, finish_done, key_of, measure, works_of};

/// Measure two or more stores in turns, and how many times as fast each is as the first
///
/// Stores are named as for `bench storage`. Each round measures every store, forwards and backwards by turns (A B, B A), so
/// that what changes meanwhile strikes all alike. A difference within the noise is said to be none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The stores; the first is what the others are compared with
    #[arg(value_name = "STORE", required = true, num_args = 2..)]
    stores: Vec<String>,
    /// Every size, order and depth, instead of what says most
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    handling: Handling,
    #[command(flatten)]
    credential: CredentialArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (options, works) = works_of(args.full);
    let wanted = Wanted {
        command: "compare",
        options,
        labels: labels(&args.stores),
        targets: args.stores,
        works,
        noise: true,
        suite: None,
        key: Some(key_of(&args.credential)),
        volume_key: None,
    };
    let done = measure(wanted, &args.common, &args.handling, global)?;
    finish_done(done, &args.common, global)
}
