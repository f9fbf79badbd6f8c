//! What a user can see of a room at one moment.
