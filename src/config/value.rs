//! The small values that settings are made of. Each parses from the same text wherever it was written — a flag, the
//! environment, the file — and its error says what to write instead.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

use crate::duration::words;

/// A duration as people write it: `500ms`, `10s`, `1m 30s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

/// A duration as people read it, to the tenth of a second: `8.4s`, `1m 30s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seconds(pub Duration);

/// A number of bytes: `65536`, `512KiB`, `64MiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSize(pub usize);

/// A whole number of things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count(pub usize);

/// A block of addresses: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block(pub IpNet);

/// Why a text is no value of its kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValueError {
    /// Not a duration.
    #[error("{0}; write a duration like 500ms, 10s or 1m")]
    Span(String),
    /// A duration below zero.
    #[error("a duration cannot be negative; write one like 500ms, 10s or 1m")]
    Negative,
    /// Not a size.
    #[error("write a number of bytes, or a number with a unit, like 512KiB or 64MiB")]
    Size,
    /// Not a whole number.
    #[error("write a whole number")]
    Count,
    /// Not a block of addresses.
    #[error("write a block of addresses like 10.0.0.0/8 or fd00::/8, or one address")]
    Block,
}

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.starts_with('-') && text[1..].starts_with(|first: char| first.is_ascii_digit()) {
            return Err(ValueError::Negative);
        }
        humantime::parse_duration(text).map(Self).map_err(|error| ValueError::Span(error.to_string()))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&words(self.0))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_millis().div_ceil(100);
        let whole = |seconds: u128| Span(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)));
        match (tenths / 10, tenths % 10) {
            (seconds, 0) => whole(seconds).fmt(out),
            (seconds @ 0..60, tenth) => write!(out, "{seconds}.{tenth}s"),
            (seconds, _) => whole(seconds + 1).fmt(out),
        }
    }
}

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor: usize = match unit.trim_start() {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(ValueError::Size),
        };
        let number: usize = number.parse().map_err(|_| ValueError::Size)?;
        number.checked_mul(factor).map(Self).ok_or(ValueError::Size)
    }
}

impl FromStr for Count {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(|_| ValueError::Count)
    }
}

impl FromStr for Block {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let block = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        block.map(Self).map_err(|_| ValueError::Block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_tenth_and_rounded_up() {
        for (millis, text) in
            [(0, "0s"), (1, "0.1s"), (500, "0.5s"), (8_333, "8.4s"), (59_900, "59.9s"), (60_001, "1m 1s"), (90_000, "1m 30s")]
        {
            assert_eq!(Seconds(Duration::from_millis(millis)).to_string(), text);
        }
    }

    #[test]
    fn a_size_takes_binary_and_decimal_units() {
        for (text, bytes) in [("0", 0), ("65536", 65_536), ("512KiB", 524_288), ("64MiB", 67_108_864), ("1 GB", 1_000_000_000)] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "64Mib", "1.5GiB", "99999999999999999999", "99999999999GiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ValueError::Size), "{text}");
        }
    }

    #[test]
    fn a_block_may_be_one_address() {
        assert_eq!("10.0.0.0/8".parse::<Block>().unwrap().0.prefix_len(), 8);
        assert_eq!("::1".parse::<Block>().unwrap().0.prefix_len(), 128);
        assert_eq!("10.0.0.0/33".parse::<Block>(), Err(ValueError::Block));
    }

    #[test]
    fn a_duration_needs_a_unit_and_no_sign() {
        assert_eq!("1m 30s".parse(), Ok(Span(Duration::from_secs(90))));
        assert_eq!("-5s".parse::<Span>(), Err(ValueError::Negative));
        let bare = "10".parse::<Span>().unwrap_err().to_string();
        assert!(bare.contains("like 500ms, 10s or 1m"), "{bare}");
        assert!("--advertise".parse::<Span>().is_err());
        assert!("-é".parse::<Span>().is_err());
    }
}
