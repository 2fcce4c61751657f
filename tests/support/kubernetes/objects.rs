//! Leases as the API server keeps them: validated, numbered in one sequence over all of them, and with their changes remembered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// All objects of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The number of the last change of all.
    version: u64,
    leases: BTreeMap<(String, String), Value>,
    pub(crate) changes: Vec<Change>,
    /// Changes up to this one are forgotten.
    pub(crate) forgotten: u64,
    uids: u64,
    pub(crate) namespaces: BTreeSet<String>,
    /// Takes no notice of the `uid` of a PUT, as no real server does.
    pub(crate) is_careless: bool,
}

/// What a watch is told.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) object: Value,
}

/// An answer: its status and its object.
pub(crate) type Reply = (u16, Value);

/// A `Status` object, as every refusal has one.
pub(crate) fn status(code: u16, reason: &str, message: &str, details: &Value) -> Reply {
    let outcome = if code < 300 { "Success" } else { "Failure" };
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": outcome, "code": code});
    for (key, value) in [("reason", json!(reason)), ("message", json!(message)), ("details", details.clone())] {
        if value != "" && !value.is_null() {
            status[key] = value;
        }
    }
    (code, status)
}

fn about(name: &str) -> Value {
    json!({"name": name, "group": "coordination.k8s.io", "kind": "leases"})
}

fn not_found(name: &str) -> Reply {
    status(404, "NotFound", &format!("leases.coordination.k8s.io \"{name}\" not found"), &about(name))
}

fn conflict(name: &str, why: &str) -> Reply {
    status(409, "Conflict", &format!("Operation cannot be fulfilled on leases.coordination.k8s.io \"{name}\": {why}"), &about(name))
}

fn invalid(name: &str, why: &str) -> Reply {
    status(422, "Invalid", &format!("Lease.coordination.k8s.io \"{name}\" is invalid: {why}"), &about(name))
}

fn bad_request(why: &str) -> Reply {
    status(400, "BadRequest", why, &Value::Null)
}

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

impl Objects {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn lease(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.leases.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(crate) fn read(&self, namespace: &str, name: &str) -> Reply {
        self.lease(namespace, name).map_or_else(|| not_found(name), |lease| (200, lease.clone()))
    }

    pub(crate) fn list(&self, namespace: &str, name: Option<&str>) -> Reply {
        let wanted = |key: &&(String, String)| key.0 == namespace && name.is_none_or(|name| key.1 == name);
        let items = self.leases.iter().filter(|(key, _)| wanted(key)).map(|(_, lease)| lease).collect::<Vec<_>>();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        (200, json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "items": items}))
    }

    pub(crate) fn create(&mut self, namespace: &str, mut lease: Value) -> Reply {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !self.namespaces.contains(namespace) {
            let details = json!({"name": namespace, "kind": "namespaces"});
            return status(404, "NotFound", &format!("namespaces \"{namespace}\" not found"), &details);
        }
        if !lease["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty() {
            return bad_request("resourceVersion should not be set on objects to be created");
        }
        if self.lease(namespace, &name).is_some() {
            let message = format!("leases.coordination.k8s.io \"{name}\" already exists");
            return status(409, "AlreadyExists", &message, &about(&name));
        }
        if let Err(refusal) = validate(&name, &mut lease) {
            return refusal;
        }
        self.uids += 1;
        let metadata = &mut lease["metadata"];
        metadata["namespace"] = namespace.into();
        metadata["uid"] = format!("{:08x}-0000-4000-8000-{:012x}", fastrand::u32(..), self.uids).into();
        metadata["creationTimestamp"] = "2026-01-02T03:04:05Z".into();
        (201, self.store("ADDED", namespace, &name, lease))
    }

    pub(crate) fn replace(&mut self, namespace: &str, name: &str, mut lease: Value) -> Reply {
        let given = |key: &str| lease["metadata"][key].as_str().unwrap_or_default().to_owned();
        let (uid, version) = (given("uid"), given("resourceVersion"));
        if given("name") != name {
            return bad_request(&format!("the name of the object ({}) does not match the name on the URL ({name})", given("name")));
        }
        let Some(old) = self.lease(namespace, name).cloned() else {
            if !uid.is_empty() && !self.is_careless {
                return conflict(name, &format!("Precondition failed: UID in precondition: {uid}, UID in object meta: "));
            }
            // As the real one does: an update of what is not there makes it.
            for key in ["uid", "resourceVersion", "creationTimestamp"] {
                lease["metadata"].as_object_mut().expect("metadata").remove(key);
            }
            return self.create(namespace, lease);
        };
        if !uid.is_empty() && old["metadata"]["uid"] != uid && !self.is_careless {
            let found = &old["metadata"]["uid"];
            return conflict(name, &format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"));
        }
        if version.is_empty() {
            return invalid(name, "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update");
        }
        if old["metadata"]["resourceVersion"] != version {
            return conflict(name, MODIFIED);
        }
        if let Err(refusal) = validate(name, &mut lease) {
            return refusal;
        }
        for key in ["uid", "namespace", "creationTimestamp"] {
            lease["metadata"][key] = old["metadata"][key].clone();
        }
        if lease == old {
            return (200, old);
        }
        (200, self.store("MODIFIED", namespace, name, lease))
    }

    /// A merge patch, as `kubectl patch --type=merge` sends it.
    pub(crate) fn patch(&mut self, namespace: &str, name: &str, patch: &Value) -> Reply {
        let Some(mut lease) = self.lease(namespace, name).cloned() else { return not_found(name) };
        merge(&mut lease, patch);
        self.replace(namespace, name, lease)
    }

    pub(crate) fn delete(&mut self, namespace: &str, name: &str, preconditions: &Value) -> Reply {
        let Some(old) = self.lease(namespace, name) else { return not_found(name) };
        for key in ["uid", "resourceVersion"] {
            if preconditions[key].as_str().is_some_and(|wanted| old["metadata"][key] != wanted) {
                return conflict(name, "Precondition failed");
            }
        }
        let (key, mut old) = ((namespace.to_owned(), name.to_owned()), old.clone());
        self.leases.remove(&key);
        self.version += 1;
        let details = json!({"name": name, "group": "coordination.k8s.io", "kind": "leases", "uid": old["metadata"]["uid"]});
        old["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.changes.push(Change { version: self.version, kind: "DELETED", namespace: namespace.to_owned(), object: old });
        status(200, "", "", &details)
    }

    /// The first change of this object after `version`. An error when that is forgotten.
    pub(crate) fn change_after(&self, version: u64, namespace: &str, name: &str) -> Result<Option<Change>, Reply> {
        if version < self.forgotten {
            let message = format!("too old resource version: {version} ({})", self.forgotten);
            return Err(status(410, "Expired", &message, &Value::Null));
        }
        let wanted =
            |change: &&Change| change.version > version && change.namespace == namespace && change.object["metadata"]["name"] == name;
        Ok(self.changes.iter().find(wanted).cloned())
    }

    /// Something else changes in the cluster.
    pub(crate) fn tick(&mut self, changes: u64) {
        self.version += changes;
    }

    /// Forgets everything but the namespaces.
    pub(crate) fn clear(&mut self) {
        let namespaces = std::mem::take(&mut self.namespaces);
        *self = Self { namespaces, ..Self::default() };
    }

    fn store(&mut self, kind: &'static str, namespace: &str, name: &str, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.leases.insert((namespace.to_owned(), name.to_owned()), lease.clone());
        self.changes.push(Change { version: self.version, kind, namespace: namespace.to_owned(), object: lease.clone() });
        lease
    }
}

/// Refuses what the real server refuses, and writes times as it does.
fn validate(name: &str, lease: &mut Value) -> Result<(), Reply> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
    };
    if name.len() > 253 || !name.split('.').all(|label| is_label(label) && !label.ends_with('-')) {
        return Err(invalid(name, "metadata.name: Invalid value: a lowercase RFC 1123 subdomain must consist of lower case characters"));
    }
    lease["apiVersion"] = "coordination.k8s.io/v1".into();
    lease["kind"] = "Lease".into();
    if lease["spec"].is_null() {
        lease["spec"] = Value::Object(Map::new());
    }
    let spec = lease["spec"].as_object_mut().ok_or_else(|| bad_request("spec is no object"))?;
    spec.retain(|_, value| !value.is_null());
    for key in ["acquireTime", "renewTime"] {
        if let Some(value) = spec.get_mut(key) {
            let time = value.as_str().and_then(micro_time);
            *value = time.ok_or_else(|| bad_request(&format!("cannot parse {value} as \"2006-01-02T15:04:05.000000Z07:00\"")))?.into();
        }
    }
    for (key, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        let Some(value) = spec.get(key) else { continue };
        let number = value.as_i64().filter(|number| i32::try_from(*number).is_ok());
        let number = number.ok_or_else(|| bad_request(&format!("cannot unmarshal {value} into field of type int32")))?;
        if number < least {
            return Err(invalid(name, &format!("spec.{key}: Invalid value: {number}: must be greater than {}", least - 1)));
        }
    }
    Ok(())
}

/// A MicroTime: exactly six digits after the second, and what comes back is in UTC.
fn micro_time(text: &str) -> Option<String> {
    let (time, zone) = text.split_at_checked("2006-01-02T15:04:05.000000".len())?;
    let (seconds, micros) = time.split_once('.')?;
    if micros.len() != 6 || !micros.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let utc = humantime::parse_rfc3339(&format!("{seconds}Z")).ok()?;
    let shift = |zone: &str| {
        let (hours, minutes) = zone.split_once(':')?;
        Some(std::time::Duration::from_secs(hours.parse::<u64>().ok()? * 3_600 + minutes.parse::<u64>().ok()? * 60))
    };
    let utc = match (zone.split_at_checked(1)?, zone) {
        (_, "Z") => utc,
        (("+", ahead), _) => utc - shift(ahead)?,
        (("-", behind), _) => utc + shift(behind)?,
        _ => return None,
    };
    let seconds = humantime::format_rfc3339_seconds(utc).to_string();
    Some(format!("{}.{micros}Z", seconds.trim_end_matches('Z')))
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
