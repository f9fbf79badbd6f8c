//! A server that monitoring can ask how it is: `/healthz`, `/readyz` and `/metrics` on this machine, and an orderly end.
//!
//! `cargo run -p strongroom-service --example health_endpoint`. Then `curl http://ADDRESS/readyz`; Ctrl-C ends it. Writes no file.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use service::{Common, Measures, Observed, Service, Stop};

/// What is served; here it only counts.
#[derive(Default)]
struct Counter(AtomicU64);

impl Observed for Counter {
    // Asked from a thread of its own: a server that hangs is reported as such.
    fn ready(&self) -> Result<(), String> {
        match self.0.load(Ordering::Relaxed) {
            0 => Err("nothing was counted yet".into()),
            _ => Ok(()),
        }
    }

    fn measure(&self, measures: &mut Measures) {
        let counted = self.0.load(Ordering::Relaxed);
        measures.counter("example_ticks_total", "Ticks counted.", counted);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Before any other thread starts, so that all of them leave the signals to it. A process that hangs ends after the grace.
    let stop = Stop::on_signals(Duration::from_secs(5))?;
    // A server takes these from its command line, its environment and a file: `settings::fill`. Port 0: any free one.
    let common = Common {
        health: Some("0".parse()?),
        ..Common::default()
    };
    let counter = Arc::new(Counter::default());
    let service = Service::start(&common, counter.clone())?;
    println!("{}", service.address().ok_or("no endpoint")?);

    counter.0.fetch_add(1, Ordering::Relaxed);
    // Also what systemd waits for with Type=notify.
    service.ready("counting");
    while !stop.wait_for(Duration::from_millis(100)) {
        counter.0.fetch_add(1, Ordering::Relaxed);
    }
    // `/readyz` fails from here on, so that nobody sends new work.
    service.stopping();
    println!("stopped");
    Ok(())
}
