//! The store in PostgreSQL: a real server for each test.

use crate::postgres_server::PostgresEngine;
use crate::sql_rig::OnServer;
use crate::suite::conformance;

conformance!(OnServer<PostgresEngine>);
