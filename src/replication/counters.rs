//! What the election counts about itself.
