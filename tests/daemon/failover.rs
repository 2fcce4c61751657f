use super::support;
