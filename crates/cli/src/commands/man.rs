//! `strongroom man`: the manual pages, made from the same descriptions as `--help`.

use std::path::{Path, PathBuf};

use crate::args::Global;
use crate::error::{Error, Result};
use crate::groups;
use crate::output;

/// Print the manual page, or write one page a command to a directory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the pages go: strongroom.1, strongroom-create.1, ...
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: Args, _global: &Global) -> Result<()> {
    let mut command = super::command();
    command.build();
    match args.directory {
        Some(directory) => {
            std::fs::create_dir_all(&directory).map_err(|e| Error::host(&directory, e))?;
            write_pages(&command, "strongroom", &directory)?;
            // The benchmark's pages replace the one that describes only how it is started.
            write_bench_pages(&directory)
        }
        None => {
            output::bytes(&page(&command, "strongroom")?);
            Ok(())
        }
    }
}

/// Has `strongroom-bench` write its own pages, where it is installed.
fn write_bench_pages(directory: &Path) -> Result<()> {
    let Some(mut bench) = super::bench::command() else {
        return Ok(());
    };
    let program = bench.get_program().to_string_lossy().into_owned();
    let status = bench.arg("man").arg(directory).status();
    match status.map_err(|e| Error::failed(format!("{program}: {e}")))? {
        status if status.success() => Ok(()),
        status => Err(Error::failed(format!("{program} man: {status}"))),
    }
}

/// One command's manual page, in roff.
pub fn page(command: &clap::Command, name: &str) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .section("1");
    let written = if name == "strongroom" {
        grouped(&man, &mut page)
    } else {
        man.render(&mut page)
    };
    written.map_err(|e| Error::failed(format!("the manual page of {name}: {e}")))?;
    Ok(page)
}

/// The page of the program itself: its commands in groups.
fn grouped(man: &clap_mangen::Man, page: &mut Vec<u8>) -> std::io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    page.extend(groups::roff().into_bytes());
    man.render_options_section(page)?;
    man.render_extra_section(page)?;
    man.render_version_section(page)
}

/// Writes the page of a command and of each command below it: `name.1`, `name-below.1` and so on.
pub fn write_pages(command: &clap::Command, name: &str, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)?).map_err(|e| Error::host(&path, e))?;
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        write_pages(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}
