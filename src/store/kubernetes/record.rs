//! The Lease object: what it says of the election, and what we write into it. Whatever else is in it goes back as it came.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::stamp;
use crate::node::{Address, BootId, Node};
use crate::store::contract::Epoch;

/// What is added to `leaseTransitions` to make the epoch; see [`Record::taken`].
const EPOCH_BASE: &str = "bellwether/epoch-base";
/// More than any store will ever count to, and still far from overflowing.
const GREATEST_BASE: u64 = 1 << 62;

/// A Lease object as the API server showed it.
#[derive(Clone, Debug)]
pub(super) struct Record {
    object: Value,
    uid: String,
    version: u64,
    base: Option<u64>,
    spec: Spec,
}

/// The part that belongs to the election, as client-go has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
}

/// Who has the lock, so far as the record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Holder<'a> {
    Nobody,
    /// A process of ours, and for how long its lock outlives its silence.
    Node {
        address: Address,
        boot: BootId,
        lasts: Duration,
    },
    /// A rival of another make. One that does not say for how long is never over.
    Other {
        identity: &'a str,
        lasts: Option<Duration>,
    },
}

impl Record {
    /// Nothing if `object` is no Lease that an API server would show.
    pub(super) fn read(object: Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        let version = metadata["resourceVersion"].as_str()?.parse().ok()?;
        let base = metadata["annotations"][EPOCH_BASE].as_str().and_then(|base| base.parse().ok());
        let spec = match &object["spec"] {
            Value::Null => Spec::default(),
            spec => Spec::deserialize(spec).ok()?,
        };
        Some(Self { uid, version, base: base.filter(|base| *base < GREATEST_BASE), spec, object })
    }

    /// An object that nobody holds, to be created.
    pub(super) fn unheld(name: &str, namespace: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "holderIdentity": "", "leaseTransitions": 0 },
        })
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// The number of its last change. It grows over all objects of a cluster, also over deletions: API servers count in
    /// etcd's revisions, and since 1.35 clients are promised that they may compare them.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the election's part of both is the same.
    pub(super) fn says_the_same_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.spec == other.spec
    }

    /// The holder's signature, if there is one.
    pub(super) fn identity(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|identity| !identity.is_empty())
    }

    pub(super) fn epoch(&self) -> Epoch {
        let transitions = u64::try_from(self.spec.lease_transitions.unwrap_or(0)).unwrap_or(0);
        Epoch(self.base.unwrap_or(0) + transitions)
    }

    /// How long its holder's lock outlives silence, where there is a holder and it says so.
    pub(super) fn lasts(&self) -> Option<Duration> {
        match self.holder() {
            Holder::Nobody => None,
            Holder::Node { lasts, .. } => Some(lasts),
            Holder::Other { lasts, .. } => lasts,
        }
    }

    pub(super) fn holder(&self) -> Holder<'_> {
        let Some(identity) = self.identity() else { return Holder::Nobody };
        let seconds = self.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let lasts = seconds.map(Duration::from_secs);
        match (node_of(identity), lasts) {
            (Some((address, boot)), Some(lasts)) => Holder::Node { address, boot, lasts },
            (Some(_) | None, lasts) => Holder::Other { identity, lasts },
        }
    }

    /// Whether `node` holds it.
    pub(super) fn names(&self, node: &Node) -> bool {
        matches!(self.holder(), Holder::Node { address, boot, .. } if address == node.address && boot == node.boot)
    }

    /// The object with a new tenure of `node` in it.
    ///
    /// The epoch is `leaseTransitions` plus a base that is kept in an annotation, so that it rises with every taker that counts
    /// as client-go does. The base is the number of the change that the first tenure follows: each tenure is a change, so
    /// an object that is made anew, whose changes have greater numbers, starts above every epoch of the old one. `greatest`
    /// is the greatest epoch that this process knows of.
    pub(super) fn taken(&self, node: &Node, ttl: Duration, greatest: Epoch) -> Value {
        let least = self.epoch().0.max(greatest.0) + 1;
        let least = if self.base.is_some() { least } else { least.max(self.version) };
        let transitions = self.spec.lease_transitions.unwrap_or(0).max(0).checked_add(1).unwrap_or(0);
        let base = self.base.unwrap_or(0).max(least.saturating_sub(u64::try_from(transitions).unwrap_or(0)));
        let now = self.now();
        let mut object = self.object.clone();
        annotate(&mut object, EPOCH_BASE, base.to_string());
        let spec = spec_of(&mut object);
        spec["holderIdentity"] = identity(node).into();
        spec["leaseDurationSeconds"] = ttl.as_secs().into();
        spec["acquireTime"] = now.clone().into();
        spec["renewTime"] = now.into();
        spec["leaseTransitions"] = transitions.into();
        object
    }

    /// The object with its tenure extended.
    pub(super) fn renewed(&self) -> Value {
        let mut object = self.object.clone();
        spec_of(&mut object)["renewTime"] = self.now().into();
        object
    }

    /// The object without a holder, as client-go gives a lock back.
    pub(super) fn released(&self) -> Value {
        let mut object = self.object.clone();
        let spec = spec_of(&mut object);
        spec["holderIdentity"] = "".into();
        spec["leaseDurationSeconds"] = 1.into();
        spec["renewTime"] = self.now().into();
        object
    }

    fn now(&self) -> String {
        stamp::unlike(self.spec.renew_time.as_deref())
    }
}

/// How a node signs: `ADDRESS_BOOT-ID`.
pub(super) fn identity(node: &Node) -> String {
    format!("{}_{}", node.address, node.boot)
}

fn node_of(identity: &str) -> Option<(Address, BootId)> {
    let (address, boot) = identity.rsplit_once('_')?;
    let is_boot_id = boot.len() == 16 && boot.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((address.parse().ok()?, boot.parse().ok().filter(|_| is_boot_id)?))
}

fn annotate(object: &mut Value, name: &str, value: String) {
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[name] = value.into();
}

fn spec_of(object: &mut Value) -> &mut Value {
    let spec = &mut object["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node { address: "10.0.0.1:4000".parse().unwrap(), boot: "00000000000000ab".parse().unwrap() }
    }

    fn record(version: u64, annotations: &Value, spec: &Value) -> Record {
        let metadata =
            json!({"name": "n", "uid": "u", "resourceVersion": version.to_string(), "annotations": annotations, "labels": {"a": "b"}});
        Record::read(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// The record as it is after `object` was written as change `version`.
    fn written(mut object: Value, version: u64) -> Record {
        object["metadata"]["resourceVersion"] = version.to_string().into();
        Record::read(object).unwrap()
    }

    fn taken(record: &Record, greatest: u64) -> Record {
        written(record.taken(&node(), Duration::from_secs(10), Epoch(greatest)), record.version + 1)
    }

    #[test]
    fn a_first_tenure_starts_above_all_changes_before_it() {
        let first = taken(&record(700, &Value::Null, &json!({"holderIdentity": "", "leaseTransitions": 0})), 0);
        assert_eq!(first.epoch(), Epoch(700));
        let second = taken(&first, 0);
        assert_eq!((second.epoch(), second.spec.lease_transitions), (Epoch(701), Some(2)));
        let anew = taken(&record(702, &Value::Null, &Value::Null), 0);
        assert!(anew.epoch() > second.epoch(), "{:?}", anew.epoch());
    }

    #[test]
    fn an_epoch_rises_whatever_others_do_to_the_count() {
        let known = json!({EPOCH_BASE: "500"});
        for (annotations, transitions, before) in [
            (known.clone(), json!(7), 507),
            (known.clone(), json!(i32::MAX), 500 + i32::MAX as u64),
            (known.clone(), json!(-3), 500),
            (known, Value::Null, 500),
            (json!({EPOCH_BASE: "much"}), json!(7), 7),
            (json!({EPOCH_BASE: u64::MAX.to_string()}), json!(7), 7),
        ] {
            let spec = json!({"holderIdentity": "", "leaseTransitions": transitions});
            let (old, next) = (record(900, &annotations, &spec), taken(&record(900, &annotations, &spec), 0));
            assert_eq!(old.epoch(), Epoch(before), "{annotations} {transitions}");
            assert!(next.epoch() > old.epoch(), "{annotations} {transitions}: {:?}", next.epoch());
            assert!(next.spec.lease_transitions.is_some_and(|count| count >= 0));
            let knowing = taken(&record(900, &annotations, &spec), 1 << 40);
            assert!(knowing.epoch() > Epoch(1 << 40), "{:?}", knowing.epoch());
        }
    }

    #[test]
    fn a_holder_is_a_node_only_in_our_form() {
        let holder = |identity: &str, seconds: Value| {
            let record = record(1, &Value::Null, &json!({"holderIdentity": identity, "leaseDurationSeconds": seconds}));
            match record.holder() {
                Holder::Nobody => "nobody",
                Holder::Node { .. } if record.names(&node()) => "us",
                Holder::Node { .. } => "node",
                Holder::Other { lasts: Some(_), .. } => "other",
                Holder::Other { lasts: None, .. } => "endless",
            }
        };
        for (identity, seconds, expected) in [
            ("", json!(10), "nobody"),
            ("10.0.0.1:4000_00000000000000ab", json!(10), "us"),
            ("10.0.0.1:4000_00000000000000ac", json!(10), "node"),
            ("a_b:4000_00000000000000ab", json!(10), "node"),
            ("[::1]:4000_00000000000000ab", json!(10), "node"),
            ("10.0.0.1:4000_00000000000000ab", Value::Null, "endless"),
            ("10.0.0.1:4000_ab", json!(10), "other"),
            ("web-1_0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77", json!(15), "other"),
            ("web-1", Value::Null, "endless"),
        ] {
            assert_eq!(holder(identity, seconds), expected, "{identity}");
        }
    }

    #[test]
    fn what_others_wrote_into_the_object_stays() {
        let old = record(1, &json!({"x": "y"}), &json!({"holderIdentity": "z", "preferredHolder": "w"}));
        for object in [old.taken(&node(), Duration::from_secs(3), Epoch(0)), old.renewed(), old.released()] {
            assert_eq!((&object["metadata"]["annotations"]["x"], &object["metadata"]["labels"]["a"]), (&json!("y"), &json!("b")));
            assert_eq!((&object["spec"]["preferredHolder"], &object["metadata"]["uid"]), (&json!("w"), &json!("u")));
        }
    }
}
