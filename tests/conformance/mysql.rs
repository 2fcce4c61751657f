//! The store in MariaDB: a real server for each test.

use crate::mariadb_server::MariadbEngine;
use crate::sql_rig::OnServer;
use crate::suite::conformance;

conformance!(OnServer<MariadbEngine>);
