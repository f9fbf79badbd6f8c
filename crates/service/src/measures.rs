//! What a server reports about itself, in the text format of Prometheus (version 0.0.4).
//!
//! Names are the program's own: letters, digits and `_`; a counter's ends in `_total`, a unit is the last word before that
//! (`_bytes`, `_seconds`).

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Media type of `Measures::text`.
pub const MEDIA_TYPE: &str = prometheus::TEXT_FORMAT;

/// Values of one moment, gathered for one answer.
#[derive(Debug, Default)]
pub struct Measures(Vec<MetricFamily>);

impl Measures {
    /// A number that only grows while the process lives.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, help, MetricType::COUNTER, vec![counted(value as f64)]);
    }

    /// Such numbers, one for each value of a label.
    pub fn counters<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, u64)>,
    ) {
        let metrics = values.into_iter().map(|(of, value)| {
            let mut metric = counted(value as f64);
            metric.set_label(vec![pair(label, of)]);
            metric
        });
        let metrics = metrics.collect();
        self.add(name, help, MetricType::COUNTER, metrics);
    }

    /// A number that rises and falls.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let metric = Metric::from_gauge(gauged(value));
        self.add(name, help, MetricType::GAUGE, vec![metric]);
    }

    /// Such numbers, one for each value of a label.
    pub fn gauges<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, f64)>,
    ) {
        let metrics = values.into_iter().map(|(of, value)| {
            let mut metric = Metric::from_gauge(gauged(value));
            metric.set_label(vec![pair(label, of)]);
            metric
        });
        let metrics = metrics.collect();
        self.add(name, help, MetricType::GAUGE, metrics);
    }

    /// Time that only grows while the process lives, in seconds.
    pub fn seconds(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, help, MetricType::COUNTER, vec![counted(value)]);
    }

    /// The text. An error means that the program gave a value without a name.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.0)
    }

    /// A family without a value says nothing: it is left out.
    fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.into());
        family.set_help(help.into());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }
}

fn counted(value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric
}

fn gauged(value: f64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    gauge
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value.into());
    pair
}
