//! A network of machines on this one: network namespaces joined by a bridge, so that any of them can be cut off.
//!
//! 1. Names begin with `srt` and this process' number; what a test makes is gone when its [`Net`] is dropped.
//! 2. Without root all machines are this one, on loopback: then nothing can be cut ([`Net::can_cut`]).

use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NETS: AtomicU32 = AtomicU32::new(0);

/// Machines and the bridge between them.
#[derive(Debug)]
pub struct Net {
    /// Part of all names; `None` on loopback.
    name: Option<String>,
    /// The second last number of the addresses.
    subnet: u32,
    machines: Vec<String>,
}

impl Net {
    /// A network of machines called so.
    pub fn new(machines: &[&str]) -> Net {
        let number = NETS.fetch_add(1, Ordering::SeqCst);
        let root = rustix::process::geteuid().is_root();
        let mut net = Net {
            name: None,
            subnet: number % 250 + 1,
            machines: machines.iter().map(|name| (*name).to_owned()).collect(),
        };
        if !root {
            eprintln!("not root: all machines are this one, on loopback");
            return net;
        }
        // Interface names have at most 15 bytes.
        net.name = Some(format!("srt{}{number}", std::process::id() % 1_000_000));
        if let Err(why) = net.make() {
            eprintln!("no network namespaces here ({why}): all machines are this one, on loopback");
            net.remove();
            net.name = None;
        }
        net
    }

    fn make(&self) -> Result<(), String> {
        let bridge = self.bridge();
        // The bridge has a machine of its own: the host's own firewall and forwarding have no part in it.
        ip(&["netns", "add", &bridge])?;
        ip(&[
            "-n", &bridge, "link", "add", "name", "bridge", "type", "bridge",
        ])?;
        ip(&["-n", &bridge, "link", "set", "dev", "bridge", "up"])?;
        for number in 0..self.machines.len() {
            let space = self.space(number);
            let port = port(number);
            ip(&["netns", "add", &space])?;
            ip(&["-n", &space, "link", "set", "dev", "lo", "up"])?;
            ip(&[
                "-n", &bridge, "link", "add", "name", &port, "type", "veth", "peer", "name",
                "eth0", "netns", &space,
            ])?;
            ip(&[
                "-n", &bridge, "link", "set", "dev", &port, "master", "bridge", "up",
            ])?;
            let address = format!("{}/24", self.address_of(number));
            ip(&["-n", &space, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "dev", "eth0", "up"])?;
        }
        Ok(())
    }

    fn bridge(&self) -> String {
        format!("{}-b", self.name.as_deref().unwrap_or_default())
    }

    fn space(&self, number: usize) -> String {
        format!("{}-{number}", self.name.as_deref().unwrap_or_default())
    }

    fn number(&self, machine: &str) -> usize {
        self.machines
            .iter()
            .position(|name| name == machine)
            .unwrap_or_else(|| panic!("there is no machine {machine}"))
    }

    fn address_of(&self, number: usize) -> String {
        match self.name {
            Some(_) => format!("10.177.{}.{}", self.subnet, number + 1),
            None => "127.0.0.1".into(),
        }
    }

    /// A machine's address.
    pub fn address(&self, machine: &str) -> String {
        self.address_of(self.number(machine))
    }

    /// Whether machines can be cut off.
    pub fn can_cut(&self) -> bool {
        self.name.is_some()
    }

    /// The same command, run on a machine: its network, and everything else of this one.
    pub fn on(&self, machine: &str, command: &Command) -> Command {
        if self.name.is_none() {
            return again(command, command.get_program().into(), Vec::new());
        }
        let space = format!("--net=/run/netns/{}", self.space(self.number(machine)));
        again(
            command,
            "nsenter".into(),
            vec![space.into(), "--".into(), command.get_program().into()],
        )
    }

    /// Runs something with a machine's network, in a thread of its own.
    pub fn within<T: Send>(&self, machine: &str, run: impl FnOnce() -> T + Send) -> T {
        let space = self.name.is_some().then(|| {
            let space = self.space(self.number(machine));
            std::fs::File::open(format!("/run/netns/{space}")).unwrap()
        });
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if let Some(space) = space {
                    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
                    let network = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), network).unwrap();
                }
                run()
            });
            thread.join().unwrap()
        })
    }

    /// From now on nothing that one of two machines sends reaches the other, and neither gets an error.
    pub fn cut(&self, one: &str, other: &str) {
        // A neighbour that nobody is: frames to it go nowhere.
        let nobody = ["lladdr", "02:00:00:00:00:fe", "nud", "permanent"];
        self.neighbour("replace", one, other, &nobody);
        self.neighbour("replace", other, one, &nobody);
    }

    /// Joins them again.
    pub fn join(&self, one: &str, other: &str) {
        self.neighbour("delete", one, other, &[]);
        self.neighbour("delete", other, one, &[]);
    }

    fn neighbour(&self, how: &str, of: &str, who: &str, more: &[&str]) {
        assert!(self.can_cut(), "nothing can be cut on loopback");
        let (space, address) = (self.space(self.number(of)), self.address(who));
        let start = ["-n", &space, "neigh", how, &address, "dev", "eth0"];
        ip(&[&start, more].concat()).unwrap();
    }

    fn remove(&self) {
        if self.name.is_none() {
            return;
        }
        for number in 0..self.machines.len() {
            let _ = ip(&["netns", "delete", &self.space(number)]);
        }
        let _ = ip(&["netns", "delete", &self.bridge()]);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.remove();
    }
}

fn port(number: usize) -> String {
    format!("port{number}")
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()))
}

/// The command with another program before it.
fn again(command: &Command, program: OsString, before: Vec<OsString>) -> Command {
    let mut new = Command::new(program);
    new.args(before).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => new.env(name, value),
            None => new.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        new.current_dir(dir);
    }
    new
}
