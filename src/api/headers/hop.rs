//! What nodes say to each other about the requests that one of them forwards.

use std::fmt;
use std::str::FromStr;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::node::BootId;
use crate::store::Epoch;

/// Who forwarded a request, and under which epoch; see [`Hop`].
pub(in crate::api) const HOP: HeaderName = HeaderName::from_static("bellwether-hop");
/// Tells a replica that its leader refused the request, see [`Refusal`]. Never reaches a client.
pub(in crate::api) const REFUSED: HeaderName = HeaderName::from_static("bellwether-refused");

/// What a replica tells the node it forwards to: `BOOT-ID;epoch=N`, the sender in 16 hexadecimal digits and the epoch
/// it believes in decimal. Anything else in the field is dropped, as it can only come from a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct Hop {
    pub(in crate::api) sender: BootId,
    pub(in crate::api) epoch: Epoch,
}

impl Hop {
    pub(in crate::api) fn to_value(self) -> HeaderValue {
        HeaderValue::from_str(&self.to_string()).expect("digits are visible ASCII")
    }

    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(HOP).iter();
        let (value, another) = (values.next()?, values.next());
        if another.is_some() { None } else { value.to_str().ok()?.parse().ok() }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{};epoch={}", self.sender, self.epoch)
    }
}

impl FromStr for Hop {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sender, epoch) = text.split_once(";epoch=").ok_or(())?;
        let hexadecimal = sender.len() == 16 && sender.bytes().all(|byte| byte.is_ascii_hexdigit());
        let decimal = !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
        if !hexadecimal || !decimal {
            return Err(());
        }
        Ok(Self { sender: sender.parse().map_err(|_| ())?, epoch: Epoch(epoch.parse().map_err(|_| ())?) })
    }
}

/// Why a node sends a request back to the one that forwarded it: it is not, or no longer, the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct Refusal {
    /// The app may have seen it all the same, under a tenure that ended meanwhile.
    pub(in crate::api) may_be_executed: bool,
}

impl Refusal {
    const UNSEEN: HeaderValue = HeaderValue::from_static("superseded");
    const SEEN: HeaderValue = HeaderValue::from_static("superseded; maybe-executed");

    pub(in crate::api) fn to_value(self) -> HeaderValue {
        if self.may_be_executed { Self::SEEN } else { Self::UNSEEN }
    }

    pub(in crate::api) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get(REFUSED).map(|value| Self { may_be_executed: *value == Self::SEEN })
    }
}
