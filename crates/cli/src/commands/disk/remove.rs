//! `strongroom disk remove`: removes a disk from a room, after its data was moved to the others.

use std::path::PathBuf;
use std::time::Duration;

use crate::access::OpenArgs;
use crate::args::Global;
use crate::commands::metadata::admin::{self, Reply, Request};
use crate::commands::metadata::remote;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounting::remote::address;
use crate::output;
use crate::progress::Bar;

/// Between two looks how far it is.
const LOOK: Duration = Duration::from_millis(300);

/// Remove a network disk from a room: the metadata server moves its data to the others while clients go on
///
/// Nothing new comes to the disk from now on, also after a restart. `disk list` shows how much is left; `disk add` with the same
/// name keeps the disk after all.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    /// The disk's name
    name: String,
    /// Wait until the disk is empty and gone
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let name = args.name.clone();
    match admin::ask(&args.room, &args.open, Request::RemoveDisk { name })? {
        Reply::Done => {}
        Reply::Leaving { left, now: true } if args.wait => wait(args, global, left)?,
        Reply::Leaving { left, now } => {
            let size = output::size(left);
            let what = match now {
                true => "is moved to the other disks; `strongroom disk list` shows how far that is",
                false if args.wait => {
                    return Err(Error::said(
                        Exit::Busy,
                        format!(
                            "{} takes nothing new, and holds {size}: that is moved when a metadata server runs; start one and ask again",
                            args.name
                        ),
                    ));
                }
                false => "is moved to the other disks when a metadata server runs",
            };
            output::note(
                global,
                format!("{} takes nothing new. {size} on it {what}.", args.name),
            );
            return Ok(());
        }
        _ => return Err(admin::unexpected()),
    }
    output::note(
        global,
        format!(
            "{} is not a disk of {} any more.",
            args.name,
            args.room.display()
        ),
    );
    Ok(())
}

/// Waits until the disk is gone; reports when something is in the way. Ctrl-C ends the waiting, not the work.
fn wait(args: &Args, global: &Global, total: u64) -> Result<()> {
    let bar = Bar::start("moving", global);
    let mut reported: Option<String> = None;
    let outcome = loop {
        let asked = match address(&args.room)? {
            Some(server) => remote::disks(&server, &args.open).map(|rows| Some(Reply::Disks(rows))),
            None => admin::ask_running(&args.room, &Request::Disks {}),
        };
        let disks = match asked {
            Ok(Some(Reply::Disks(disks))) => disks,
            Ok(Some(_)) => break Err(admin::unexpected()),
            Ok(None) => {
                break Err(Error::failed(format!(
                    "the metadata server has ended; the next one goes on with {}",
                    args.name
                )));
            }
            Err(e) => break Err(e),
        };
        let Some(disk) = disks.iter().find(|disk| disk.name == args.name) else {
            break Ok(());
        };
        let Some(left) = disk.leaving else {
            break Err(Error::said(
                Exit::Busy,
                format!("{} was added again meanwhile, and stays", args.name),
            ));
        };
        if disk.obstacle != reported {
            if let Some(what) = &disk.obstacle {
                output::note(global, format!("{}: {what}", args.name));
            }
            reported.clone_from(&disk.obstacle);
        }
        if !bar.report(total.saturating_sub(left), total) {
            break Err(crate::progress::interrupted());
        }
        std::thread::sleep(LOOK);
    };
    bar.end();
    outcome
}
