//! What must hold in every state, and what must be reached, so that the model is not empty.

use stateright::Property;

use crate::protocol::Protocol;
use crate::world::World;

pub(crate) fn properties() -> Vec<Property<Protocol>> {
    vec![
        Property::always(
            "a block is written only by a holder of its grant",
            |_, w: &World| !w.broken.forged,
        ),
        Property::always("a request acts at most once", |_, w: &World| {
            !w.broken.repeated
        }),
        Property::always(
            "a request acts only in the epoch in which it was signed, or in the next",
            |_, w: &World| !w.broken.late,
        ),
        Property::always(
            "nothing acts after its revocation has returned",
            |_, w: &World| !w.broken.after_revocation,
        ),
        Property::always(
            "only the metadata server manages the disk",
            |_, w: &World| !w.broken.managed,
        ),
        Property::always(
            "the metadata server's changes act in the order in which they were signed",
            |_, w: &World| !w.broken.overtaken,
        ),
        Property::always(
            "a reader gets what the disk had while it read",
            |_, w: &World| !w.broken.misread,
        ),
        Property::always(
            "nobody sees which blocks are used",
            |of: &Protocol, w: &World| of.is_secure() || !w.broken.seen,
        ),
        Property::always("Eve learns no secret of Alice's", |_, w: &World| {
            !w.broken.learnt
        }),
        Property::sometimes(
            "a revocation returns while the disk runs",
            |_, w: &World| w.server.returned != 0 && w.disk.boot == 0 && w.now == 0,
        ),
        Property::sometimes("a write succeeds after a restart", |_, w: &World| {
            w.reached.write_after_restart
        }),
        Property::sometimes("a read succeeds", |_, w: &World| w.reached.read),
    ]
}
