//! The configuration file: TOML whose keys are the long flags of `manage`, without the dashes.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::ConfigError;
use crate::cli::Settings;

/// `settings`, completed from the configuration file that they name, if they name one.
pub(super) fn complete(settings: Settings) -> Result<Settings, ConfigError> {
    match settings.config.clone() {
        Some(path) => Ok(settings.over(read(&path)?)),
        None => Ok(settings),
    }
}

/// Reads settings from the file at `path`.
///
/// # Errors
/// [`ConfigError`] naming the file and, for anything wrong in it, the line.
fn read(path: &Path) -> Result<Settings, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        ConfigError::new(format!("cannot read the config file {}: {error}; check --config (BELLWETHER_CONFIG)", path.display()))
    })?;
    parse(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let what = error.message().lines().collect::<Vec<_>>().join(" ");
        ConfigError::new(format!("config file {}, line {line}: {what}", path.display()))
    })
}

fn parse(text: &str) -> Result<Settings, toml::de::Error> {
    toml::from_str(text)
}

/// Reads a value from its text, as a flag would; a number or a truth value may also be written bare.
pub(crate) fn one<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(input: D) -> Result<Option<T>, D::Error> {
    input.deserialize_any(Text).and_then(|text| parsed(&text)).map(Some)
}

/// Reads a list of values, each from its text; a single one needs no brackets.
pub(crate) fn many<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(input: D) -> Result<Option<Vec<T>>, D::Error> {
    input.deserialize_any(Texts)?.iter().map(|text| parsed(text)).collect::<Result<_, _>>().map(Some)
}

/// Reads options: a list of `key=value`, or a table.
pub(crate) fn options<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<String>>, D::Error> {
    input.deserialize_any(Options).map(Some)
}

fn parsed<E: Error, T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, E> {
    text.parse().map_err(|error| E::custom(format_args!("{error}")))
}

struct Text;

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string, a number or true or false")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<String, E> {
        Ok(truth.to_string())
    }
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<String>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string or a list of strings")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(texts)
    }
}

struct Options;

impl<'de> Visitor<'de> for Options {
    type Value = Vec<String>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a table of options or a list of key=value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
        Texts.visit_str(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<String>, A::Error> {
        Texts.visit_seq(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Vec<String>, A::Error> {
        let mut options = Vec::new();
        while let Some((key, value)) = table.next_entry::<String, String>()? {
            options.push(format!("{key}={value}"));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_long_flags() {
        let settings = parse(
            r#"
            host = [":4000", "unix:///run/bellwether.sock"]
            replication = true
            advertise = "10.0.0.1:4000"
            replication-ttl = "3s"
            upstream = "http://127.0.0.1:8080"
            hold-requests = 50
            hold-bytes = "1MiB"
            store = "etcd://127.0.0.1:2379"
            "#,
        )
        .unwrap();
        assert_eq!(settings.host.unwrap().len(), 2);
        assert_eq!(settings.replication, Some(true));
        assert_eq!(settings.upstream.unwrap(), ["http://127.0.0.1:8080"]);
        assert_eq!(settings.hold_requests.unwrap().0, 50);
        assert_eq!(settings.hold_bytes.unwrap().0, 1 << 20);
    }

    #[test]
    fn store_options_are_a_list_or_a_table() {
        for text in ["store-opt = [\"cacert=/ca\", \"username=root\"]", "[store-opt]\nusername = \"root\"\ncacert = \"/ca\""] {
            assert_eq!(parse(text).unwrap().store_opt.unwrap(), ["cacert=/ca", "username=root"], "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = parse("replicaton = true").unwrap_err();
        assert!(error.message().contains("unknown field `replicaton`"), "{error}");
    }
}
