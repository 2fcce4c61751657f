//! What befalls whole daemons on every store that is a server of its own: one set of tests, made in each store's module.

/// Makes a test of each scenario on this store.
macro_rules! scenarios {
    ($kind:ident) => {
        mod on_every_store {
            use crate::outage::Memory;
            use crate::support::store::Kind;
            use crate::support::wire::Mode;
            use crate::{clock, crash, foresight, outage, partition, planned};

            #[tokio::test]
            async fn a_killed_primary_costs_a_short_wait() {
                crash::killed(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_frozen_primary_is_replaced_and_serves_no_more() {
                crash::frozen(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_terminated_primary_hands_over_and_no_request_fails() {
                planned::terminated(Kind::$kind).await;
            }

            #[tokio::test]
            async fn thirty_forced_changes_in_a_row_fail_no_request() {
                planned::resigned_in_turn(Kind::$kind).await;
            }

            #[tokio::test]
            async fn no_node_leads_while_requests_of_the_last_tenure_run() {
                planned::drained(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_long_outage_heals_by_itself() {
                outage::outage(Kind::$kind, Memory::Kept).await;
            }

            #[tokio::test]
            async fn a_long_outage_that_comes_back_empty_heals_by_itself() {
                outage::outage(Kind::$kind, Memory::Lost).await;
            }

            #[tokio::test]
            async fn a_single_node_that_lost_its_lock_leads_again() {
                outage::single(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_primary_cut_off_from_the_store_steps_down_in_time() {
                partition::cut_off(Kind::$kind, Mode::Blackhole).await;
            }

            #[tokio::test]
            async fn a_lock_is_released_in_the_middle_of_a_renewal() {
                partition::released(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_failover_costs_what_was_planned() {
                foresight::as_planned(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_wall_clock_that_is_an_hour_wrong_makes_no_second_primary() {
                clock::an_hour_wrong(Kind::$kind).await;
            }
        }
    };
}

pub(crate) use scenarios;
