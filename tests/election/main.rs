//! The election as a whole, in paused time, over a store and a network that lie.

mod outage;
mod planned;
mod property;
mod world;
