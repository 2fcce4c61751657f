//! What follows a URL's scheme, for each kind of store. Names are taken as they are written: nothing is decoded.

use std::path::{Path, PathBuf};

use super::scheme::Scheme;
use super::{Database, UrlError};
use crate::node::Address;
use crate::store::election::{Election, check_prefix};

/// The scheme, and what follows its colon; a host and port alone is not taken for one.
pub(super) fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    let no_scheme = || UrlError::NoScheme(without_user(text));
    let (scheme, rest) = text.split_once(':').ok_or_else(no_scheme)?;
    let is_name = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
    match is_name && (rest.starts_with("//") || scheme == "memory") {
        true => Ok((scheme, rest)),
        false => Err(no_scheme()),
    }
}

fn without_user(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}"))
}

/// What stands before the `@`, and what after it.
fn split_user(rest: &str) -> Result<(Option<&str>, &str), UrlError> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    // The last `@`, wherever it is: a password may itself have slashes and question marks.
    match rest.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => Err(UrlError::Password),
        Some((user, rest)) => Ok((Some(user), rest)),
        None => Ok((None, rest)),
    }
}

/// What follows `//`, in a URL that names no user.
fn without_credentials(scheme: Scheme, rest: &str) -> Result<&str, UrlError> {
    match split_user(rest)? {
        (Some(_), _) => Err(UrlError::User(scheme.credentials())),
        (None, rest) => Ok(rest),
    }
}

/// `//HOST:PORT,HOST:PORT/PREFIX`
pub(super) fn members(scheme: Scheme, rest: &str, port: u16) -> Result<(Vec<Address>, String), UrlError> {
    let rest = without_credentials(scheme, rest)?;
    refuse_settings(rest)?;
    let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = match prefix.strip_suffix('/').unwrap_or(prefix) {
        "" => Election::DEFAULT_PREFIX,
        prefix => prefix,
    };
    check_prefix(prefix)?;
    let mut members = Vec::new();
    for host in hosts.split(',') {
        let member = address(scheme, host, port)?;
        if members.contains(&member) {
            return Err(UrlError::Twice(member));
        }
        members.push(member);
    }
    Ok((members, prefix.to_owned()))
}

/// A host with its port, or with the store's own.
fn address(scheme: Scheme, host: &str, port: u16) -> Result<Address, UrlError> {
    let has_port = match host.rsplit_once(']') {
        Some((_, after)) => after.contains(':'),
        None => host.contains(':'),
    };
    match host {
        "" => Err(UrlError::NoHost(scheme.example())),
        host if has_port => host.parse().map_err(UrlError::Host),
        host => format!("{host}:{port}").parse().map_err(UrlError::Host),
    }
}

/// `//USER@HOST:PORT/DATABASE`
pub(super) fn database(scheme: Scheme, rest: &str, port: u16) -> Result<Database, UrlError> {
    let (user, rest) = split_user(rest)?;
    if user.is_some_and(|user| !is_plain(user)) {
        return Err(UrlError::UserName);
    }
    refuse_settings(rest)?;
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    let server = address(scheme, host, port)?;
    match name.strip_suffix('/').unwrap_or(name) {
        "" => Err(UrlError::NoDatabase(scheme.example())),
        name if is_plain(name) => Ok(Database { server, user: user.map(str::to_owned), name: name.to_owned() }),
        name => Err(UrlError::Database(name.to_owned())),
    }
}

/// Whether a user or database is written in a URL as it is elsewhere.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(|letter: char| letter.is_whitespace() || letter.is_control() || "/?#%".contains(letter))
}

/// `//NAMESPACE`, a label as DNS has them.
pub(super) fn namespace(rest: &str) -> Result<String, UrlError> {
    let rest = without_credentials(Scheme::Kubernetes, rest)?;
    refuse_settings(rest)?;
    let name = rest.strip_suffix('/').unwrap_or(rest);
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=63).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('-') && !name.ends_with('-') {
        true => Ok(name.to_owned()),
        false => Err(UrlError::Namespace(name.to_owned())),
    }
}

/// `///ABSOLUTE/PATH`, byte for byte.
pub(super) fn path(rest: &str) -> Result<PathBuf, UrlError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    refuse_settings(path)?;
    if !path.starts_with('/') {
        return Err(UrlError::Relative(without_user(path)));
    }
    if path.ends_with('/') || Path::new(path).file_name().is_none() {
        return Err(UrlError::Folder(path.to_owned()));
    }
    Ok(PathBuf::from(path))
}

/// Nothing, or the name of one of several stores in memory.
pub(super) fn memory(name: &str) -> Result<(), UrlError> {
    match name.is_empty() || check_prefix(name).is_ok() && !name.contains('/') {
        true => Ok(()),
        false => Err(UrlError::MemoryName(without_user(name))),
    }
}

fn refuse_settings(rest: &str) -> Result<(), UrlError> {
    match rest.find(['?', '#']) {
        Some(start) => {
            // Only what it is called: what it is set to may be a secret.
            let name = rest[start..].split_inclusive('=').next().unwrap_or_default();
            Err(UrlError::Settings(name.to_owned()))
        }
        None => Ok(()),
    }
}
