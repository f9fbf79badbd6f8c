//! The simulation against what is known exactly: queues, and the laws that hold for every system of clients and servers.
#![allow(missing_docs)]

use capacity_model::calibration::{CONNECT, LOCAL_DISK, MS, RETRY, SECOND, US};
use capacity_model::{Failure, Latency, Log, Mix, Report, Setup, Station, Step, Time, simulate};

/// Mean milliseconds that work waits at a station, if it comes at random and servers are busy for a share `load` of the time.
fn waits(servers: usize, load: f64, takes: Latency, mean: Time) -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut station, mut now, mut waited) = (Station::new(servers), 0, 0);
    let between = Latency::Exponential((mean as f64 / load / servers as f64) as Time);
    let count = 1_000_000;
    for _ in 0..count {
        now += between.sample(&mut random);
        let takes = takes.sample(&mut random);
        waited += station.serve(now, takes) - now - takes;
    }
    waited as f64 / f64::from(count) / 1e6
}

/// Mean wait in M/M/c, in services: Erlang's formula C.
fn erlang(servers: usize, load: f64) -> f64 {
    let offered = servers as f64 * load;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..servers {
        term *= offered / n as f64;
        sum += term;
    }
    let last = term * offered / servers as f64 / (1.0 - load);
    last / (sum + last) / (servers as f64 * (1.0 - load))
}

fn assert_near(found: f64, expected: f64, within: f64) {
    let off = (found / expected - 1.0).abs();
    assert!(
        off < within,
        "{found} for {expected}: {:.1} % off",
        off * 100.0
    );
}

#[test]
fn a_station_waits_as_erlang_says() {
    for servers in [1, 4, 16] {
        for load in [0.5, 0.8, 0.9] {
            let found = waits(servers, load, Latency::Exponential(MS), MS);
            assert_near(found, erlang(servers, load), 0.05);
        }
    }
}

#[test]
fn a_station_of_constant_work_waits_as_pollaczek_and_khinchine_say_and_cosmetatos_for_more_servers()
{
    for servers in [1, 4, 16] {
        for load in [0.5, 0.8, 0.9] {
            let (c, more) = (servers as f64, servers as f64 - 1.0);
            let correction =
                1.0 + (1.0 - load) * more * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * load * c);
            let expected = erlang(servers, load) / 2.0 * correction;
            assert_near(waits(servers, load, Latency::Fixed(MS), MS), expected, 0.06);
        }
    }
}

#[test]
fn a_log_normal_latency_has_its_median_and_its_99th_percentile() {
    let mut random = fastrand::Rng::with_seed(1);
    let latency = Latency::LogNormal {
        median: 20 * MS,
        p99: 100 * MS,
    };
    let mut times: Vec<Time> = (0..200_000).map(|_| latency.sample(&mut random)).collect();
    times.sort_unstable();
    assert_near(times[100_000] as f64, 20.0 * MS as f64, 0.02);
    assert_near(times[198_000] as f64, 100.0 * MS as f64, 0.04);
}

#[test]
fn who_comes_during_a_sync_shares_the_next() {
    let mut log = Log::default();
    let joined: Vec<Time> = [0, 1, 5, 10, 19, 20, 50]
        .map(|now| log.join(now, || 10))
        .to_vec();
    assert_eq!(joined, [10, 20, 20, 30, 30, 40, 60]);
    assert_eq!((log.syncs(), log.busy()), (5, 50));
}

fn setup(mix: Mix, clients: usize) -> Setup {
    Setup {
        clients,
        mix,
        rooms: 2,
        skew: 0.0,
        machines: 2,
        processors: 2,
        log: LOCAL_DISK,
        disks: 3,
        disk_requests: 5_000.0,
        disk_bytes: 1e9,
        measured: 10 * SECOND,
        failure: None,
        seed: 7,
    }
}

fn most(report: &Report, of: &str) -> f64 {
    report.used.iter().find(|used| used.of == of).unwrap().mean
}

#[test]
fn clients_pause_and_wait_as_littles_law_says_and_what_is_used_is_what_was_asked_for() {
    for clients in [50, 400, 4_000] {
        let mix = Mix::mail();
        let mut setup = setup(mix.clone(), clients);
        // Enough operations to be near the mean.
        setup.measured = if clients < 1_000 { 60 } else { 15 } * SECOND;
        let report = simulate(&setup);
        let cycle = mix.pause as f64 / 1e6 + report.mean_ms;
        assert_near(report.operations * cycle / 1e3, clients as f64, 0.03);

        let weights: f64 = mix.operations.iter().map(|o| o.weight).sum();
        let asked = |of: fn(&Step) -> f64| -> f64 {
            let all = mix.operations.iter();
            all.map(|o| o.weight / weights * o.steps.iter().map(of).sum::<f64>())
                .sum()
        };
        let disk = asked(|step| match step {
            Step::Disk(bytes) => 1.0 / 5_000.0 + *bytes as f64 / 1e9,
            _ => 0.0,
        });
        assert_near(most(&report, "disks"), report.operations * disk / 3.0, 0.05);
        let processors = asked(|step| match step {
            Step::Processor(takes) => *takes as f64 / 1e9,
            _ => 0.0,
        });
        let heartbeats = clients as f64 * capacity_model::calibration::HEARTBEAT.all as f64 / 1e9;
        let processors = (report.operations * processors + heartbeats) / 4.0;
        assert_near(most(&report, "processors"), processors, 0.05);
        assert!(
            report.used.iter().all(|used| used.most < 1.01),
            "{report:?}"
        );
    }
}

#[test]
fn a_full_resource_limits_what_is_done() {
    // Processors alone: four of them, and 100 us an operation.
    let work = vec![Step::Processor(100 * US)];
    let report = simulate(&setup(Mix::new(MS, [(1.0, work)]), 1_000));
    let heartbeats = 1_000.0 * capacity_model::calibration::HEARTBEAT.all as f64 / 1e9;
    assert_near(report.operations, (4.0 - heartbeats) / 100e-6, 0.01);
    assert_eq!(report.used[0].of, "processors");

    // A log alone: one client of each room waits for a sync each time.
    let mut one = setup(Mix::new(0, [(1.0, vec![Step::Log])]), 2);
    one.log = Latency::Fixed(MS);
    let report = simulate(&one);
    assert_near(report.operations, 2_000.0, 0.01);
    assert_near(report.syncs, 2_000.0, 0.01);
}

#[test]
fn clients_of_a_failed_machine_come_back_after_their_pause_or_when_there_are_threads_for_all() {
    let failed = |clients, processors| {
        let mut setup = setup(Mix::home(), clients);
        (setup.rooms, setup.machines, setup.processors) = (1, 1, processors);
        setup.measured = 15 * SECOND;
        setup.failure = Some(Failure {
            at: 16 * SECOND,
            pause: 5 * SECOND,
        });
        simulate(&setup)
    };
    let few = failed(100, 8);
    assert_near(few.reconnected.unwrap(), RETRY as f64 / 1e9, 0.1);
    assert_near(few.longest, (5 * SECOND + RETRY) as f64 / 1e9, 0.1);
    let many = failed(8_000, 2).reconnected.unwrap();
    assert!(many > 8_000.0 * CONNECT.network as f64 / 1e9, "{many}");
    assert!(many < 10.0, "{many}");
}

#[test]
fn one_seed_gives_one_result_and_another_seed_another() {
    let run = |seed| {
        let mut setup = setup(Mix::home(), 300);
        setup.seed = seed;
        format!("{:?}", simulate(&setup))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
