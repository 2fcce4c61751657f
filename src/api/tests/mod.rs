//! The data plane as clients and apps see it: nodes in this process, on real sockets, with roles that the test decides.

mod passing;
mod rig;
