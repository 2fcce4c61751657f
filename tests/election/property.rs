//! Hundreds of histories, each from its seed: whatever the network, the store and the processes do, there are never two
//! primaries, epochs never fall, and once the faults end a leader is there within two TTLs.

use std::time::Duration;

use futures_util::FutureExt;

use super::world::World;

const TTL: Duration = Duration::from_secs(3);

/// Runs `history` for each seed in paused time; a failure names its seed.
pub(crate) fn for_each_seed(seeds: std::ops::Range<u64>, history: impl AsyncFn(u64)) {
    for seed in seeds {
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(history(seed))));
        if let Err(panic) = outcome {
            eprintln!("seed {seed} shows the fault above");
            std::panic::resume_unwind(panic);
        }
    }
}

pub(crate) fn up_to(rng: &mut fastrand::Rng, most: Duration) -> Duration {
    most.mul_f64(rng.f64())
}

/// One random thing that goes wrong, or right again.
fn strike(world: &mut World, rng: &mut fastrand::Rng) {
    let index = rng.usize(..world.peers.len());
    let peer = &world.peers[index];
    match rng.u32(..16) {
        0 => peer.faults.partition(),
        1 => peer.faults.refuse(),
        2 | 3 => peer.faults.calm(),
        4 => peer.faults.delay(Duration::ZERO..up_to(rng, TTL)),
        5 => peer.faults.delay_replies(Duration::ZERO..up_to(rng, TTL)),
        6 => peer.faults.lose_replies(rng.f64()),
        7 => peer.faults.spurious(rng.f64()),
        8 => peer.freeze(),
        9 | 10 => peer.thaw(),
        11 => world.crash(index),
        12 => world.memory.stop(),
        13 | 14 => world.memory.start(),
        _ => {
            // Polled once, the order is given and stands; the answer is for nobody.
            peer.handle.resign().now_or_never();
        }
    }
}

fn end_faults(world: &mut World) {
    world.memory.start();
    for peer in &world.peers {
        peer.faults.calm();
        peer.thaw();
    }
}

async fn stormy_history(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = 2 + rng.usize(..4);
    let mut world = World::new(seed, TTL, count);
    for _ in 0..30 {
        strike(&mut world, &mut rng);
        let calm = up_to(&mut rng, TTL);
        world.pass(calm).await;
    }
    end_faults(&mut world);
    world.until_agreed(TTL * 2).await;
    world.pass(TTL).await;
}

#[test]
fn no_history_has_two_primaries_or_a_falling_epoch() {
    for_each_seed(0..300, stormy_history);
}

/// Faults that come alone, so that each has its full effect on a settled election.
async fn single_fault(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(seed, TTL, 3);
    world.until_agreed(TTL).await;
    for _ in 0..4 {
        strike(&mut world, &mut rng);
        world.pass(TTL * 2).await;
        end_faults(&mut world);
        world.until_agreed(TTL * 2).await;
    }
}

#[test]
fn a_single_fault_is_healed_within_two_ttls_of_its_end() {
    for_each_seed(1_000..1_200, single_fault);
}
