//! What every store promises the election, each promise once.
//!
//! A promise is a function over a [`Harness`](crate::harness::Harness); `conformance!` makes a test of each for one
//! store. Bounds on the safe side (nobody leads too early, no two lead, no epoch falls) are exact; bounds on the other
//! side leave the store its slack, for real stores are tested on busy machines. Nothing sleeps to let something happen:
//! whoever waits, waits for a state, with a limit and a reason.

mod cancel;
mod record;
pub(crate) mod steps;
mod tenure;
mod waiting;

pub(crate) use cancel::*;
pub(crate) use record::*;
pub(crate) use tenure::*;
pub(crate) use waiting::*;

/// Makes a test of each promise for one store; further arguments go to `tokio::test`.
macro_rules! conformance {
    ($harness:ty $(, $($runtime:tt)+)?) => {
        crate::suite::promises! { $harness, start, [$($($runtime)+)?],
            of_many_racers_one_wins
            a_taken_lock_names_its_leader_to_everybody
            a_renewed_lease_outlives_its_ttl
            a_silent_holder_keeps_the_lock_for_its_ttl_and_not_much_longer
            a_released_lock_is_free_at_once
            releasing_twice_is_harmless
            an_earlier_tenure_cannot_touch_a_later_one_of_the_same_process
            each_tenure_has_a_greater_epoch
            a_restarted_node_leads_under_a_greater_epoch
            epochs_rise_although_the_record_was_deleted
            a_lease_that_another_took_over_is_lost
            releasing_a_lost_lease_leaves_the_next_holder_alone
            a_process_at_the_same_address_is_a_stranger
            a_withdrawn_candidate_never_leads
            withdrawing_gives_back_what_is_held
            withdrawing_without_anything_is_harmless
            a_deleted_record_is_a_lost_lease
            a_foreign_record_is_never_overwritten
            an_erased_election_leaves_nothing_behind
            erasing_leaves_the_tenure_of_another_alone
            a_waiter_with_stale_knowledge_returns_at_once
            a_waiter_hears_of_a_first_leader
            a_waiter_hears_of_a_release
            a_waiter_hears_of_an_expiry
            a_waiter_hears_of_a_deletion
            a_waiter_hears_of_a_takeover
            a_waiter_that_was_dropped_misses_nothing
            an_attempt_whose_reply_was_lost_is_adopted
            calls_may_be_dropped_anywhere
        }
        crate::suite::promises! { $harness, start_alone, [$($($runtime)+)?],
            a_store_that_comes_back_is_found_again
        }
    };
}

macro_rules! promises {
    ($harness:ty, $start:ident, $runtime:tt, $($promise:ident)*) => {
        $(crate::suite::promise! { $harness, $start, $runtime, $promise })*
    };
}

macro_rules! promise {
    ($harness:ty, $start:ident, [$($runtime:tt)*], $promise:ident) => {
        #[tokio::test($($runtime)*)]
        async fn $promise() {
            let store = <$harness as crate::harness::Harness>::$start().await;
            crate::suite::$promise(&store).await;
        }
    };
}

pub(crate) use {conformance, promise, promises};
