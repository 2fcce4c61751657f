//! A node's `/_bellwether/metrics`, read as Prometheus reads it.

use super::http;
use super::place::Place;

/// One reading of all metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Reads the metrics of the node at `place`.
    pub(crate) async fn of(place: impl Into<Place>) -> Self {
        Self::parse(http::get(place, "/_bellwether/metrics").await.text())
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(|line| Self::sample(line).unwrap_or_else(|| panic!("no metric: {line:?}"))).collect())
    }

    fn sample(line: &str) -> Option<(String, f64)> {
        let (series, value) = line.rsplit_once(' ')?;
        Some((series.strip_prefix("bellwether_")?.to_owned(), value.parse().ok()?))
    }

    /// The one value of `series`, which may end with labels as in `role{role="primary"}`.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let found = self.0.iter().find(|(name, _)| name == series);
        found.unwrap_or_else(|| panic!("no {series} among {:#?}", self.0)).1
    }

    /// The sum over all labels of `name`.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let labelled = format!("{name}{{");
        self.0.iter().filter(|(series, _)| series == name || series.starts_with(&labelled)).map(|(_, value)| value).sum()
    }

    /// What was accepted and is neither accounted for by an outcome nor still held or running; 0 when the books balance.
    pub(crate) fn unaccounted(&self) -> f64 {
        let known = self.sum("requests_total") + self.value("held_requests") + self.value("running_requests");
        self.value("requests_accepted_total") - known
    }
}
