//! Which of the pending changes survive: all subsets while these are few, else the most revealing ones and seeded samples.

use super::disk::SECTOR;
use super::{Change, Point};

/// How many choices are made at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Up to so many pending changes (a length counts apart from its data) every subset is listed.
    pub bits: u32,
    /// Beyond that: the number of random subsets, besides the most revealing ones.
    pub samples: usize,
    /// So many torn variants of a write.
    pub tears: usize,
    /// Seed of what is random.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bits: 8,
            samples: 8,
            tears: 8,
            seed: 1,
        }
    }
}

/// How much of a pending change survives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Lost,
    /// All of it.
    Whole,
    /// The new length without the data: zeros.
    LengthOnly,
    /// The data without the new length: hidden, unless a later length shows it.
    DataOnly,
    /// Some sectors.
    Torn {
        /// Which survive.
        sectors: Vec<bool>,
        /// The length in bytes that survives; `None`: the old one.
        length: Option<u64>,
    },
}

/// For each pending change, oldest first, how much of it survives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice(pub Vec<Keep>);

struct Chooser<'p> {
    changes: Vec<&'p Change>,
    /// Indices of the changes that matter.
    units: Vec<usize>,
    /// Of these, the ones of which something must survive; empty: no condition.
    news: Vec<usize>,
    random: fastrand::Rng,
    choices: Vec<Choice>,
}

pub(super) fn choices(point: &Point<'_>, limits: &Limits) -> Vec<Choice> {
    let reachable = point.disk.reachable();
    let pending = point.disk.pending();
    let matters = |c: &Change| c.file().is_none_or(|file| reachable.contains(&file));
    let units: Vec<usize> = (0..pending.len())
        .filter(|i| matters(&pending[*i].change))
        .collect();
    let is_new = |i: &usize| pending[*i].event + 1 == point.index;
    let news: Vec<usize> = if point.all {
        Vec::new()
    } else {
        units.iter().copied().filter(is_new).collect()
    };
    if news.is_empty() && !point.all {
        return Vec::new();
    }
    let mut chooser = Chooser {
        changes: pending.iter().map(|p| &p.change).collect(),
        units,
        news,
        random: fastrand::Rng::with_seed(limits.seed ^ ((point.index as u64) << 32)),
        choices: Vec::new(),
    };
    chooser.whole_and_nothing();
    if chooser.bits() <= limits.bits {
        chooser.every_subset();
    } else {
        chooser.revealing_subsets();
        chooser.samples(limits.samples);
    }
    chooser.tears(limits.tears);
    chooser.choices
}

impl Chooser<'_> {
    fn lost(&self) -> Vec<Keep> {
        vec![Keep::Lost; self.changes.len()]
    }

    fn is_new(&self, unit: usize) -> bool {
        self.news.contains(&unit)
    }

    /// Lists a choice if it keeps something of what is new.
    fn push(&mut self, keeps: Vec<Keep>) {
        if self.news.is_empty() || self.news.iter().any(|i| keeps[*i] != Keep::Lost) {
            self.choices.push(Choice(keeps));
        }
    }

    /// Keeps wholly what `keep` says, besides what is new.
    fn push_if(&mut self, keep: impl Fn(usize) -> bool) {
        let mut keeps = self.lost();
        for unit in &self.units {
            if keep(*unit) {
                keeps[*unit] = Keep::Whole;
            }
        }
        self.push(keeps);
    }

    fn whole_and_nothing(&mut self) {
        let news = self.news.clone();
        self.push_if(|_| true);
        self.push_if(|unit| news.contains(&unit));
    }

    /// Choices of one bit each.
    fn bits(&self) -> u32 {
        let bits = self.units.iter();
        bits.map(|i| 1 + u32::from(self.changes[*i].extends().is_some()))
            .sum()
    }

    fn every_subset(&mut self) {
        for subset in 0..1_u64 << self.bits() {
            let mut rest = subset;
            let mut bit = || {
                let bit = rest & 1 == 1;
                rest >>= 1;
                bit
            };
            let mut keeps = self.lost();
            for unit in &self.units {
                let data = bit();
                let length = if self.changes[*unit].extends().is_some() {
                    bit()
                } else {
                    data
                };
                keeps[*unit] = keep(data, length);
            }
            self.push(keeps);
        }
    }

    /// All but one, only one, all before, all after; lengths without data.
    fn revealing_subsets(&mut self) {
        let news = self.news.clone();
        for unit in self.units.clone() {
            self.push_if(|u| u != unit);
            self.push_if(|u| u >= unit);
            self.push_if(|u| u == unit || news.contains(&u));
            if news.is_empty() {
                self.push_if(|u| u <= unit);
            }
            if self.changes[unit].extends().is_some() {
                for keep in [Keep::LengthOnly, Keep::DataOnly] {
                    let mut keeps = self.lost();
                    for u in &self.units {
                        keeps[*u] = Keep::Whole;
                    }
                    keeps[unit] = keep;
                    self.push(keeps);
                }
            }
        }
    }

    fn samples(&mut self, count: usize) {
        for _ in 0..count {
            let keeps = self.random_keeps();
            self.push(keeps);
        }
    }

    fn random_keeps(&mut self) -> Vec<Keep> {
        let mut keeps = self.lost();
        let density = [0.2, 0.5, 0.8][self.random.usize(..3)];
        for unit in self.units.clone() {
            let sectors = self.changes[unit].sectors();
            let extends = self.changes[unit].extends();
            keeps[unit] = if sectors > 1 && self.random.f64() < 0.2 {
                let sectors = (0..sectors).map(|_| self.random.bool()).collect();
                let length = extends.filter(|_| self.random.bool());
                Keep::Torn { sectors, length }
            } else {
                let data = self.random.f64() < density || self.is_new(unit);
                let length = match extends {
                    Some(_) => self.random.f64() < density,
                    None => data,
                };
                keep(data, length)
            };
        }
        keeps
    }

    /// Torn variants of the new writes, or of all: with everything else, with nothing else, with a random part of it.
    fn tears(&mut self, count: usize) {
        let news = self.news.clone();
        for unit in self.units.clone() {
            if !news.is_empty() && !news.contains(&unit) {
                continue;
            }
            let mut torn = self.torn(unit);
            self.random.shuffle(&mut torn);
            for (index, keep) in torn.into_iter().take(count).enumerate() {
                let mut keeps = match index % 3 {
                    0 => {
                        let mut keeps = self.lost();
                        self.units.iter().for_each(|u| keeps[*u] = Keep::Whole);
                        keeps
                    }
                    1 => self.lost(),
                    _ => self.random_keeps(),
                };
                keeps[unit] = keep;
                self.push(keeps);
            }
        }
    }

    /// Ways to tear a write: prefixes, suffixes, one sector lost, one kept, and some at random.
    fn torn(&mut self, unit: usize) -> Vec<Keep> {
        let change = self.changes[unit];
        let count = change.sectors();
        if count < 2 {
            return Vec::new();
        }
        let Change::Bytes {
            offset, extends, ..
        } = change
        else {
            return Vec::new();
        };
        let borders: Vec<usize> = if count <= 9 {
            (1..count).collect()
        } else {
            let mut some = vec![1, count / 2, count - 1];
            some.extend((0..6).map(|_| self.random.usize(1..count)));
            some
        };
        let mut torn = Vec::new();
        let mut add = |sectors: Vec<bool>, length: Option<u64>| {
            torn.push(Keep::Torn { sectors, length });
        };
        for border in borders {
            let part = extends.map(|full| full.min(offset + border as u64 * SECTOR));
            add((0..count).map(|s| s < border).collect(), part);
            add((0..count).map(|s| s < border).collect(), *extends);
            add((0..count).map(|s| s >= border).collect(), *extends);
            add((0..count).map(|s| s != border).collect(), *extends);
            add((0..count).map(|s| s == border).collect(), *extends);
        }
        add((0..count).map(|s| s != 0).collect(), *extends);
        for _ in 0..4 {
            let sectors = (0..count).map(|_| self.random.bool()).collect();
            add(sectors, *extends);
        }
        torn
    }
}

fn keep(data: bool, length: bool) -> Keep {
    match (data, length) {
        (false, false) => Keep::Lost,
        (true, true) => Keep::Whole,
        (true, false) => Keep::DataOnly,
        (false, true) => Keep::LengthOnly,
    }
}
