//! How long to wait before the next try: longer each time, never exactly as long as somebody else.

use std::time::Duration;

/// Doubles from `least` to `most`; each answer is drawn between half and the whole of the present step.
#[derive(Clone, Debug)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    step: Duration,
}

impl Backoff {
    /// A back-off whose first answer is at most `least`. A `most` below `least` counts as `least`.
    pub fn new(least: Duration, most: Duration) -> Self {
        Self { least, most: most.max(least), step: least }
    }

    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(self.most);
        step.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.step = self.least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(35));
        for step in [10, 20, 35, 35] {
            let pause = backoff.next_pause();
            assert!(pause <= Duration::from_millis(step) && pause >= Duration::from_millis(step) / 2, "{pause:?} of {step}");
        }
        backoff.reset();
        assert!(backoff.next_pause() <= Duration::from_millis(10));
    }
}
