//! CPU per request through two hops, beside the public proxies, in one run.
//!
//! Requests per second swing with the machine; the CPU that the proxies spend on a request does not, so that is what is
//! compared, as a ratio to HAProxy in the same round. Everything runs on loopback and for a bounded time:
//! `make bench`, or `cargo bench --bench two_hops -- [ROUNDS] [SECONDS]`.

mod chain;
mod load;

use std::time::Duration;

use chain::Chain;
use load::Kind;

const CLIENTS: usize = 50;

/// What one chain spent in one round.
struct Sample {
    chain: &'static str,
    kind: Kind,
    requests_per_second: f64,
    cpu_per_100k: f64,
}

fn main() {
    // cargo passes `--bench`; what a person passes are numbers.
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(5).clamp(1, 50);
    let seconds = numbers.get(1).copied().unwrap_or(2).clamp(1, 30);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let app = load::start_app();
    let chains: Vec<Chain> =
        [Chain::haproxy, Chain::nginx, Chain::bellwether].into_iter().filter_map(|start| start(folder.path(), app)).collect();
    for chain in &chains {
        chain.wait_until_ready();
    }
    println!("{CLIENTS} clients, {rounds} rounds of {seconds} s, client → hop → hop → app");
    for kind in Kind::ALL {
        let samples = measure(&chains, kind, rounds, Duration::from_secs(seconds));
        report(kind, &chains, &samples);
    }
}

/// Interleaved, so that a machine that slows down slows all of them.
fn measure(chains: &[Chain], kind: Kind, rounds: u64, span: Duration) -> Vec<Sample> {
    for chain in chains {
        load::run(chain.entry, kind, CLIENTS, Duration::from_millis(500));
    }
    let mut samples = Vec::new();
    for _ in 0..rounds {
        for chain in chains {
            let before = chain.cpu();
            let requests = load::run(chain.entry, kind, CLIENTS, span) as f64;
            let spent = chain.cpu() - before;
            samples.push(Sample {
                chain: chain.name,
                kind,
                requests_per_second: requests / span.as_secs_f64(),
                cpu_per_100k: spent.as_secs_f64() / requests * 100_000.0,
            });
        }
    }
    samples
}

fn report(kind: Kind, chains: &[Chain], samples: &[Sample]) {
    let of = |chain: &'static str| samples.iter().filter(move |sample| sample.chain == chain && sample.kind == kind);
    let base: Vec<f64> = of("haproxy").map(|sample| sample.cpu_per_100k).collect();
    println!("\n{:<12} {:>10} {:>12} {:>14}", kind.name(), "req/s", "CPU s/100k", "x HAProxy");
    for chain in chains {
        let cpu: Vec<f64> = of(chain.name).map(|sample| sample.cpu_per_100k).collect();
        let ratio = median(cpu.iter().zip(&base).map(|(own, base)| own / base));
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let speed = median(of(chain.name).map(|sample| sample.requests_per_second)).unwrap_or_default();
        println!("{:<12} {speed:>10.0} {:>12.2} {ratio:>14}", chain.name, median(cpu).unwrap_or_default());
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
