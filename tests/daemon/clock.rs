//! Nodes whose wall clocks are wrong take part like any other: nothing of a lock is told by wall clocks.

use std::time::Duration;

use crate::support::app::App;
use crate::support::daemon::{Daemon, Manage};
use crate::support::ledger::Ledger;
use crate::support::one::One;
use crate::support::store::{Kind, Store};

const TTL: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(30);

/// B13: one of two nodes is an hour ahead or behind. Each leads in its turn, and epochs rise.
pub(crate) async fn an_hour_wrong(kind: Kind) {
    for offset in ["+3600s", "-3600s"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::start(kind, folder.path()).await;
        let (ledger, mut nodes, mut apps) = (Ledger::default(), Vec::new(), Vec::new());
        for (name, is_wrong) in [("wrong", true), ("right", false)] {
            let app = App::start(name, &ledger).await;
            let manage = Manage::new(name, folder.path()).replicated(&store.url(), TTL).upstream(app.address());
            let node = if is_wrong { manage.by_clock(offset) } else { manage }.start().await;
            if is_wrong {
                node.assert_by_false_clock();
            }
            // The one that is wrong leads first.
            node.becomes(if is_wrong { "primary" } else { "replica" }, LIMIT).await;
            nodes.push(node);
            apps.push(app);
        }
        let one = One::watch(nodes.iter().map(Daemon::address));
        // It crashes, the other one crashes, and it hands over.
        for (from, crashes) in [(0, true), (1, true), (0, false)] {
            let epoch = nodes[from].becomes("primary", LIMIT).await.epoch;
            match crashes {
                true => nodes[from].kill().await,
                false => assert_eq!(nodes[from].resign().await.status, 200, "{offset}"),
            }
            let next = nodes[1 - from].becomes("primary", kind.lasts(TTL) + LIMIT).await;
            assert!(next.epoch > epoch, "{offset}");
            if crashes {
                nodes[from] = nodes[from].manage().start().await;
            }
            nodes[from].becomes("replica", LIMIT).await;
        }
        one.assert_never_two();
        ledger.assert_in_order();
    }
}
