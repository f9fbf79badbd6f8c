//! The explorer's command line: which workloads, how far, and what came of it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use clap::{Args, Parser, Subcommand};
use explorer::campaign::{self, Bounds};
use explorer::explore::{Options, Report, Subject, record, replay};
use explorer::receiver_subject::{ReceiverSubject, receiving};
use explorer::room_subject::RoomSubject;
use explorer::states::{Limits, StateId};
use explorer::workload::{
    Workload, ahead, grants, keys, mixed, ones, random, snapshots, together, twos,
};
use explorer::{faults, sites, story, without};

/// Cuts the power of a room at every point and looks at what is left.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every workload of one operation.
    Ones,
    /// Every workload of two operations.
    Twos,
    /// Every operation in a transaction with a few others.
    Together,
    /// Long random workloads, without end: give a bound.
    Random {
        /// Steps of each.
        #[arg(long, default_value_t = 60)]
        steps: usize,
        /// With snapshots, transactions and maintenance among them.
        #[arg(long)]
        mixed: bool,
    },
    /// Workloads of keys, headers, rekeying, compaction, backup and repair.
    Keys,
    /// Workloads of another machine that borrows places, writes there itself, and places it into files.
    Grants,
    /// Every operation with snapshots before and behind it.
    Snapshots,
    /// Every operation with what a room does ahead of commits before and behind it.
    Ahead,
    /// A replica that receives what those lead to.
    Receiving,
    /// Leaves out each sync of the room in turn, and says by which workload that is noticed.
    Sites {
        /// Only sites whose name has this in it.
        #[arg(long)]
        only: Option<String>,
        /// Names the sites and stops.
        #[arg(long)]
        list: bool,
    },
    /// Lets operations of the storage fail, each in turn, and damages what is read.
    Faults {
        /// Of which workloads: ones, twos, together, keys, grants, snapshots, ahead, or random:STEPS for sixteen of them.
        family: String,
        /// One operation in so many.
        #[arg(long, default_value_t = 1)]
        stride: u64,
        /// Do not damage what is read of the catalog.
        #[arg(long)]
        spare_catalog: bool,
    },
    /// Looks at one workload, or at one state of it, again.
    Replay {
        /// The workload's name, such as twos:17.
        name: String,
        /// The state, as POINT:CHOICE.
        #[arg(long)]
        state: Option<StateId>,
        /// The state that a second crash left, in the recovery of the first.
        #[arg(long, requires = "state")]
        second: Option<StateId>,
        /// Print every operation on the storage.
        #[arg(long)]
        operations: bool,
    },
}

#[derive(Debug, Args)]
struct How {
    /// Stop after so many seconds.
    #[arg(long, global = true)]
    seconds: Option<u64>,
    /// Stop after so many different states.
    #[arg(long, global = true)]
    states: Option<u64>,
    /// Look at most at so many states of each workload; 0: at all.
    #[arg(long, global = true, default_value_t = 0)]
    each: usize,
    /// Of all workloads take one in so many, beginning at the seed.
    #[arg(long, global = true, default_value_t = 1)]
    every: usize,
    /// Only this workload, by its number.
    #[arg(long, global = true)]
    workload: Option<usize>,
    /// Seed of all that is random.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Up to so many pending changes every subset is tried.
    #[arg(long, global = true, default_value_t = Limits::default().bits)]
    bits: u32,
    /// Beyond that, so many random subsets.
    #[arg(long, global = true, default_value_t = Limits::default().samples)]
    samples: usize,
    /// So many torn variants of each write.
    #[arg(long, global = true, default_value_t = Limits::default().tears)]
    tears: usize,
    /// Cut the recovery too of one state in so many; 0: of none.
    #[arg(long, global = true, default_value_t = Options::default().recovery_every)]
    recoveries: u64,
    /// Use the room, not only look at it, in one state in so many.
    #[arg(long, global = true, default_value_t = Options::default().thorough_every)]
    thorough: u64,
    /// Stop after so many failures.
    #[arg(long, global = true, default_value_t = 10)]
    failures: usize,
    /// Threads.
    #[arg(long, global = true, default_value_t = 2)]
    threads: usize,
}

impl How {
    fn options(&self) -> Options {
        Options {
            limits: Limits {
                bits: self.bits,
                samples: self.samples,
                tears: self.tears,
                seed: self.seed,
            },
            states_max: self.each,
            recovery_every: self.recoveries,
            thorough_every: self.thorough,
            ..Options::default()
        }
    }

    fn bounds(&self, start: Instant) -> Bounds {
        Bounds {
            threads: self.threads,
            deadline: self.seconds.map(|s| start + Duration::from_secs(s)),
            states_max: self.states.unwrap_or(u64::MAX),
            failures_max: self.failures,
        }
    }

    /// The workload that comes as `index`th, in a family of `count`. The seed says which comes first: runs that are cut
    /// short see others each time.
    fn number(&self, index: usize, count: usize) -> Option<usize> {
        let (seed, every) = (self.seed as usize, self.every.max(1));
        match self.workload {
            Some(number) => (index == 0).then_some(number),
            None if every == 1 => (index < count).then(|| seed.wrapping_add(index) % count),
            None => Some(seed % every + index * every),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic of the room is a failure and is reported with its state.
    std::panic::set_hook(Box::new(|_| {}));
    let how = &cli.how;
    let family = |all: Vec<Workload>| {
        summed(how, |index| {
            all.get(how.number(index, all.len())?)
                .cloned()
                .map(RoomSubject)
        })
    };
    let failed = match &cli.command {
        Command::Ones => family(ones()),
        Command::Twos => family(twos()),
        Command::Together => family(together()),
        Command::Keys => family(keys()),
        Command::Grants => family(grants()),
        Command::Snapshots => family(snapshots()),
        Command::Ahead => family(ahead()),
        Command::Receiving => {
            let all = receiving();
            summed(how, |index| {
                let number = how.number(index, all.len())?;
                Some(ReceiverSubject::new(number, all.get(number)?.clone()))
            })
        }
        Command::Random { steps, mixed: all } => {
            if how.seconds.is_none() && how.states.is_none() && how.workload.is_none() {
                eprintln!("random workloads have no end: give --seconds, --states or --workload");
                return ExitCode::from(2);
            }
            let first = how.seed << 20;
            summed(how, |index| {
                let seed = match how.workload {
                    Some(number) => (index == 0).then_some(number as u64)?,
                    None => first + index as u64,
                };
                let of = if *all { mixed } else { random };
                Some(RoomSubject(of(seed, *steps)))
            })
        }
        Command::Sites { only, list } => sites_campaign(how, only.as_deref(), *list),
        Command::Faults {
            family,
            stride,
            spare_catalog,
        } => tried_faults(how, family, *stride, !spare_catalog),
        Command::Replay {
            name,
            state,
            second,
            operations,
        } => replayed(how, name, *state, *second, *operations),
    };
    ExitCode::from(u8::from(failed))
}

/// Runs a campaign and prints what came of it; whether something failed.
fn summed<S: Subject>(how: &How, subject: impl Fn(usize) -> Option<S> + Sync) -> bool {
    let start = Instant::now();
    let report = campaign::run(subject, &how.options(), &how.bounds(start), |sum, new| {
        for found in sum.failures.iter().rev().take(new) {
            println!("{}", found.story);
        }
        println!("{}", line(sum, start));
    });
    println!("{}", line(&report, start));
    !report.failures.is_empty()
}

fn line(report: &Report, start: Instant) -> String {
    let seconds = start.elapsed().as_secs_f64();
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    format!(
        "{} workloads, {} crash points, {} states, {} different ({:.0} a second, {:.0} a second of one processor), \
         {} recoveries cut ({} states), {} failures, {seconds:.0} s{}",
        report.workloads,
        report.points,
        report.states,
        report.distinct,
        report.distinct as f64 / seconds,
        report.distinct as f64 / cpu,
        report.recoveries,
        report.second,
        report.failures.len(),
        if report.cut_short { ", cut short" } else { "" },
    )
}

/// Tries every fault and prints what came of it; whether something failed.
fn tried_faults(how: &How, family: &str, stride: u64, damage_catalog: bool) -> bool {
    let all = match family.split_once(':') {
        None if family == "ones" => ones(),
        None if family == "twos" => twos(),
        None if family == "together" => together(),
        None if family == "keys" => keys(),
        None if family == "grants" => grants(),
        None if family == "snapshots" => snapshots(),
        None if family == "ahead" => ahead(),
        Some(("random", steps)) => match steps.parse() {
            Ok(steps) => (0..16).map(|n| random(how.seed << 20 | n, steps)).collect(),
            Err(_) => Vec::new(),
        },
        _ => Vec::new(),
    };
    let count = all.len();
    let workloads: Vec<Workload> = (0..count)
        .map_while(|index| all.get(how.number(index, count)?).cloned())
        .collect();
    if workloads.is_empty() {
        eprintln!("there are no such workloads");
        return true;
    }
    let start = Instant::now();
    let report = faults::run(&faults::Options {
        workloads,
        kinds: faults::Kind::ALL.to_vec(),
        damage_catalog,
        stride,
        until: how.seconds.map(|s| start + Duration::from_secs(s)),
        threads: how.threads,
    });
    for story in &report.failures {
        println!("{story}\n");
    }
    print!("{report}");
    println!("{:.0} s", start.elapsed().as_secs_f64());
    report.failed > 0
}

fn replayed(
    how: &How,
    name: &str,
    state: Option<StateId>,
    second: Option<StateId>,
    operations: bool,
) -> bool {
    if let Some(receiver) = ReceiverSubject::named(name) {
        println!("{}", receiver.steps().join("\n"));
        return replayed_as(how, &receiver, state, second, operations);
    }
    let Some(workload) = Workload::named(name) else {
        eprintln!("there is no workload {name}");
        return true;
    };
    println!("{workload}");
    replayed_as(how, &RoomSubject(workload), state, second, operations)
}

fn replayed_as<S: Subject>(
    how: &How,
    subject: &S,
    state: Option<StateId>,
    second: Option<StateId>,
    operations: bool,
) -> bool {
    if operations {
        match record(subject, None) {
            Ok(recorded) => print!("{}", story::listing(&recorded.log)),
            Err(failure) => println!("{failure}"),
        }
    }
    let Some(state) = state else {
        return !operations && summed(how, |index| (index == 0).then_some(subject));
    };
    match replay(subject, &how.options(), state, second, None) {
        Ok(None) => println!("state {state} holds"),
        Ok(Some(story)) => {
            println!("{story}");
            return true;
        }
        Err(failure) => {
            println!("{failure}");
            return true;
        }
    }
    false
}

/// Leaves out each sync; whether one of them is not missed.
/// Kills the process at the operations of workloads without the syncs of a site; how often, and what failed first.
fn killed_without(
    site: &sites::Site,
    subjects: &[&RoomSubject],
    until: Option<Instant>,
) -> (u64, Option<String>) {
    let watch = sites::Watch::ignoring(site.clone());
    let mut kills = 0;
    for subject in subjects {
        let (more, failed) = faults::kills(&subject.0, &watch, until);
        kills += more;
        if let Some(failure) = failed {
            return (kills, Some(failure.to_string()));
        }
    }
    (kills, None)
}

/// The first lines of a story, in one.
fn brief(story: &str) -> String {
    let lines: Vec<&str> = story.lines().take(3).map(str::trim).collect();
    lines.join(" ")
}

fn sites_campaign(how: &How, only: Option<&str>, list: bool) -> bool {
    let every = how.every.max(1);
    let workloads: Vec<RoomSubject> = keys()
        .into_iter()
        .step_by(every)
        .chain(ones().into_iter().step_by(every))
        .chain((0..2).map(|n| random(how.seed << 20 | n, 40)))
        .map(RoomSubject)
        .collect();
    let users = without::users(&workloads, how.threads);
    let mut never = Vec::new();
    for (site, by) in &users {
        if only.is_some_and(|part| !site.0.contains(part)) {
            continue;
        }
        if list {
            println!("{site} ({} workloads)", by.len());
            continue;
        }
        let start = Instant::now();
        let subjects: Vec<&RoomSubject> = by.iter().map(|index| &workloads[*index]).collect();
        let tried = without::without(site, &subjects, &how.options(), &how.bounds(start));
        let (mut kills, mut killed) = (0, None);
        if tried.failures.is_empty() {
            (kills, killed) = killed_without(site, &subjects, how.bounds(Instant::now()).deadline);
        }
        let seconds = start.elapsed().as_secs_f64();
        if let Some(failure) = killed {
            println!(
                "caught: {site}\n  after {kills} kills, {seconds:.1} s: {}",
                brief(&failure)
            );
            continue;
        }
        match tried.failures.first() {
            Some(found) => {
                let what = found.story.lines().skip_while(|l| !l.starts_with("found"));
                let what: Vec<&str> = what.skip(1).take(2).map(str::trim).collect();
                println!(
                    "caught: {site}\n  after {} states of {} workloads, {seconds:.1} s: {}",
                    tried.distinct,
                    tried.workloads,
                    what.join(" ")
                );
            }
            None => {
                println!(
                    "NOT CAUGHT: {site}\n  {} states of {} workloads, {kills} kills, {seconds:.1} s",
                    tried.distinct, tried.workloads
                );
                never.push(site.clone());
            }
        }
    }
    println!("{} sites, {} not caught", users.len(), never.len());
    !never.is_empty()
}
