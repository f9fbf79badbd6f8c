//! Which connections there may be: how many that have proved nothing yet, how many of one address, how many of one client.
//!
//! 1. Connections that have proved nothing are counted apart. They never keep out one that has, and among themselves the oldest
//!    gives way to the newest: of the same address where that has its share, else of all.
//! 2. Clients have a number of connections together, from one address, and each for itself.
//! 3. The operator's connections are not counted: they need a place only until they are known.
//!
//! It deliberately does not know sockets, or how a connection proves itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients.
    pub clients: usize,
    /// Of these, from one address; an IPv6 network of 64 bits counts as one.
    pub per_address: usize,
    /// Of these, of one client.
    pub per_client: usize,
    /// Connections that have proved nothing yet, or not any more.
    pub waiting: usize,
    /// Of these, from one address.
    pub waiting_per_address: usize,
}

impl Limits {
    /// So many connections, of anybody and from anywhere.
    pub fn total(connections: usize) -> Self {
        Self {
            clients: connections,
            per_address: usize::MAX,
            per_client: usize::MAX,
            waiting: usize::MAX,
            waiting_per_address: usize::MAX,
        }
    }
}

/// What a connection has proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet, or not any more.
    Waiting,
    /// That it is a client's: which one, where that is known.
    Client(Option<u64>),
    /// That it is the operator's, who manages the server.
    Operator,
}

/// The connections that are there.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    last: u64,
    /// In the order in which they came.
    connections: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    network: Option<IpAddr>,
    standing: Standing,
    /// It gave way to another, and is about to end.
    displaced: bool,
}

impl Admission {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            last: 0,
            connections: BTreeMap::new(),
        }
    }

    /// Takes a connection that has proved nothing, from this address: its number, and the number of the one that gives way.
    pub fn begin(&mut self, address: Option<IpAddr>) -> (u64, Option<u64>) {
        let network = address.map(network);
        let waiting = |of: &dyn Fn(&Connection) -> bool| {
            let mut found = self.connections.iter().filter(|(_, connection)| {
                connection.standing == Standing::Waiting && !connection.displaced && of(connection)
            });
            let oldest = found.next().map(|(number, _)| *number);
            (oldest, usize::from(oldest.is_some()) + found.count())
        };
        let (of_address, share) = waiting(&|connection| connection.network == network);
        let (of_all, all) = waiting(&|_| true);
        let displaced = if share >= self.limits.waiting_per_address {
            of_address
        } else if all >= self.limits.waiting {
            of_all
        } else {
            None
        };
        if let Some(connection) = displaced.and_then(|number| self.connections.get_mut(&number)) {
            connection.displaced = true;
        }
        self.last += 1;
        let connection = Connection {
            network,
            standing: Standing::Waiting,
            displaced: false,
        };
        self.connections.insert(self.last, connection);
        (self.last, displaced)
    }

    /// Notes what a connection has proved; false, and no change, where there are too many clients' already, or it gave way.
    pub fn prove(&mut self, number: u64, standing: Standing) -> bool {
        let Some(this) = self.connections.get(&number) else {
            return false;
        };
        if this.displaced {
            return false;
        }
        if let Standing::Client(client) = standing
            && this.standing != standing
        {
            let (mut all, mut of_address, mut of_client) = (0, 0, 0);
            for (other, connection) in &self.connections {
                let Standing::Client(whose) = connection.standing else {
                    continue;
                };
                if *other != number {
                    all += 1;
                    of_address += usize::from(connection.network == this.network);
                    of_client += usize::from(client.is_some() && whose == client);
                }
            }
            let limits = &self.limits;
            if all >= limits.clients
                || of_address >= limits.per_address
                || of_client >= limits.per_client
            {
                return false;
            }
        }
        if let Some(this) = self.connections.get_mut(&number) {
            this.standing = standing;
        }
        true
    }

    /// A connection is over.
    pub fn end(&mut self, number: u64) {
        self.connections.remove(&number);
    }
}

/// What is counted as one address: the holder of an IPv6 address has 2^64 of them.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        clients: 4,
        per_address: 3,
        per_client: 2,
        waiting: 3,
        waiting_per_address: 2,
    };

    fn from(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn what_has_proved_nothing_gives_way_to_the_newest_of_its_address_and_then_of_all() {
        let mut admission = Admission::new(LIMITS);
        assert_eq!(admission.begin(from(1)), (1, None));
        assert_eq!(admission.begin(from(1)), (2, None));
        assert_eq!(admission.begin(from(1)), (3, Some(1)));
        assert!(!admission.prove(1, Standing::Operator), "it gave way");
        assert_eq!(admission.begin(from(2)), (4, None));
        assert_eq!(admission.begin(from(3)), (5, Some(2)));
        admission.end(3);
        assert_eq!(admission.begin(from(3)), (6, None));
        // One that has proved something gives way to nobody.
        assert!(admission.prove(4, Standing::Client(Some(7))));
        assert_eq!(admission.begin(from(1)), (7, None));
        assert_eq!(admission.begin(from(4)), (8, Some(5)));
    }

    #[test]
    fn clients_have_their_limits_and_the_operator_has_none() {
        let mut admission = Admission::new(LIMITS);
        let mut prove = |address, standing| {
            let (number, _) = admission.begin(from(address));
            let proved = admission.prove(number, standing);
            if !proved {
                admission.end(number);
            }
            proved.then_some(number)
        };
        let client = |number| Standing::Client(Some(number));
        assert!(prove(1, client(1)).is_some());
        assert!(prove(1, client(1)).is_some());
        assert!(prove(2, client(1)).is_none(), "the client has two");
        assert!(prove(1, client(2)).is_some());
        assert!(prove(1, client(3)).is_none(), "the address has three");
        let last = prove(2, client(3)).unwrap();
        assert!(prove(3, client(4)).is_none(), "there are four");
        for _ in 0..10 {
            assert!(prove(1, Standing::Operator).is_some());
        }
        // What was proved and does not hold any more frees its place.
        assert!(admission.prove(last, client(3)), "proved already");
        assert!(admission.prove(last, Standing::Waiting));
        let (number, _) = admission.begin(from(3));
        assert!(admission.prove(number, client(4)));
        assert!(!admission.prove(last, client(3)));
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
