//! Whether the data was right, and whether its content mattered.

use super::{Issue, IssueKind, Limits, Seen, issue};
use crate::words;

/// Whatever is read is compared with what was written.
pub(super) fn wrong(seen: &Seen) -> Option<Issue> {
    (seen.claim.wrong_bytes > 0).then(|| {
        issue(
            IssueKind::WrongData,
            format!(
                "{} of {} read were not what had been written",
                words::bytes(seen.claim.wrong_bytes),
                words::bytes(seen.claim.compared_bytes)
            ),
        )
    })
}

/// A pass of data and one of zeros, the same work.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Zeros {
    /// Rate with incompressible data.
    pub data_rate: f64,
    /// Rate with zeros.
    pub zeros_rate: f64,
    /// Lower end of the 95 % interval of the second over the first, if it was computed: rates that scatter prove nothing.
    pub ratio_low: Option<f64>,
    /// Bytes the device wrote for each byte of data.
    pub data_amplification: Option<f64>,
    /// And of zeros.
    pub zeros_amplification: Option<f64>,
}

/// Whether zeros go faster, or reach the device as fewer bytes: compression, deduplication or holes. Rates with this store's
/// incompressible data are honest; other data will have other rates.
pub fn data_matters(passes: &Zeros, limits: &Limits) -> Option<Issue> {
    /// Of the bytes of data that zeros must still be at the device; journals and rounding take less than the rest.
    const FEWER: f64 = 0.8;
    let faster = passes.zeros_rate / passes.data_rate - 1.0;
    let fewer = passes
        .data_amplification
        .zip(passes.zeros_amplification)
        .filter(|(data, zeros)| *zeros < *data * FEWER);
    let said = match fewer {
        Some((data, zeros)) => format!(
            "of zeros {zeros:.2} bytes reach the device for each written, of data {data:.2}: it compresses, deduplicates or makes holes"
        ),
        None if faster > limits.zeros_share && passes.ratio_low.is_none_or(|low| low > 1.0) => {
            format!(
                "zeros go {:.0} % faster than data: it compresses, deduplicates or makes holes",
                faster * 100.0
            )
        }
        None => return None,
    };
    Some(issue(IssueKind::DataMatters, said))
}
