//! `strongroom info`: facts about a room.

use std::path::PathBuf;

use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::{Client, unexpected};
use crate::control::{InfoReply, Reply, Request, Transport};
use crate::error::Result;
use crate::output::{self, size};
use crate::place::{must_be_room, room_argument};
use crate::prices::Prices;
use crate::proxy::room_name;
use crate::wire::StoreReply;

use super::key::read_header;

/// Show facts about a room; without a credential, and not mounted, only what its header says
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// Of a room in a bucket: estimate what its store bills by this table of prices (JSON; docs/bucket.md)
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    must_be_room(&args.room)?;
    let prices = args.prices.as_deref().map(Prices::read).transpose()?;
    let prices = prices.unwrap_or_else(Prices::usual);
    let mounted = Client::find(&args.room)?;
    if mounted.is_none() && !args.open.credential.any() {
        return header_only(&args, global);
    }
    let access = Access::reach(&args.room, &args.open, Intent::Read)?;
    let Reply::Info(info) = access.run(&Request::Info {}, &|_, _| true)? else {
        return Err(unexpected());
    };
    access.close()?;
    if global.json {
        // Our own report has text for keys.
        let mut value = serde_json::to_value(&info).expect("our own reports are JSON");
        value["room"] = room_name(&args.room).to_string_lossy().into();
        value["verified"] = true.into();
        if let Some(store) = &info.store {
            let (requests, month) = prices.estimate(store);
            value["store"]["estimate"] =
                json!({"requests": requests, "month": month, "prices": prices});
        }
        if let Some(client) = &mounted {
            value["mounted"] = json!({"mountpoint": client.mountpoint.to_string_lossy(), "pid": client.pid, "read_only": client.read_only, "transport": client.transport});
        }
        output::json_line(&value);
    } else {
        people(&args, &info, mounted.as_ref(), &prices);
    }
    Ok(())
}

/// What a room has in its store, and what that costs.
fn of_store(store: &StoreReply, prices: &Prices) {
    match (store.objects, store.bytes) {
        (Some(objects), Some(bytes)) => output::line(format!(
            "store       {} in {}",
            size(bytes),
            output::count(objects, "object")
        )),
        _ => output::line("store       does not answer"),
    }
    output::line(format!(
        "requests    {} PUT ({}), {} GET ({}), {} LIST, {} DELETE since it was opened",
        store.puts,
        size(store.bytes_put),
        store.gets,
        size(store.bytes_got),
        store.lists,
        store.deletes
    ));
    let (requests, month) = prices.estimate(store);
    output::line(format!(
        "estimate    {requests:.4} {currency} for these requests, {month:.2} {currency} a month for storage ({})",
        prices.source,
        currency = prices.currency
    ));
}

fn people(args: &Args, info: &InfoReply, mounted: Option<&Client>, prices: &Prices) {
    output::line(format!("room        {}", room_name(&args.room).display()));
    output::line(format!("id          {}", info.id));
    output::line(format!("format      {}", info.format));
    output::line(format!("suite       {}", info.suite));
    output::line(format!(
        "made        {} UTC",
        output::moment(i64::try_from(info.created).unwrap_or(i64::MAX))
    ));
    output::line(format!("generation  {}", info.generation));
    let rekeying = if info.rekeying {
        " (a rekey is unfinished: run `strongroom rekey` again)"
    } else {
        ""
    };
    output::line(format!("key epoch   {}{rekeying}", info.key_epoch));
    output::line(format!("key slots   {}", info.slots));
    output::line(format!("files       {}", info.space.inodes));
    output::line(format!("data        {}", size(info.space.live)));
    output::line(format!(
        "stored      {} in {}",
        size(info.space.stored),
        output::count(info.segments, "segment")
    ));
    if info.snapshots > 0 {
        output::line(format!(
            "snapshots   {} in {}",
            size(info.space.snapshots),
            output::count(info.snapshots, "snapshot")
        ));
    }
    match &info.store {
        Some(store) => of_store(store, prices),
        None => output::line(format!("free        {}", size(info.space.available))),
    }
    match mounted {
        Some(client) => {
            let how = if client.read_only { ", read-only" } else { "" };
            let over = match client.transport {
                Some(Transport::IoUring) => ", over io_uring",
                Some(Transport::Device) | None => "",
            };
            output::line(format!(
                "mounted     {} by process {}{how}{over}",
                client.mountpoint.display(),
                client.pid
            ));
        }
        None => output::line("mounted     no"),
    }
}

fn header_only(args: &Args, global: &Global) -> Result<()> {
    let header = read_header(&args.room, global)?;
    if global.json {
        output::json_line(&json!({
            "room": room_name(&args.room).to_string_lossy(),
            "verified": false,
            "id": header.room_id().to_string(),
            "format": header.format(),
            "suite": header.suite().name(),
            "created": header.created_unix_s(),
            "key_epoch": header.epoch(),
            "rekeying": header.rekey_under_way(),
            "slots": header.slots().len(),
        }));
        return Ok(());
    }
    output::line(format!("room        {}", room_name(&args.room).display()));
    output::line(format!("id          {}", header.room_id()));
    output::line(format!("format      {}", header.format()));
    output::line(format!("suite       {}", header.suite().name()));
    output::line(format!(
        "made        {} UTC",
        output::moment(i64::try_from(header.created_unix_s()).unwrap_or(i64::MAX))
    ));
    output::line(format!("key epoch   {}", header.epoch()));
    output::line(format!("key slots   {}", header.slots().len()));
    output::line("mounted     no");
    output::note(
        global,
        "This is what the header says, unverified; give a credential (such as --passphrase-file) for the rest.",
    );
    Ok(())
}
