//! Much at once.
