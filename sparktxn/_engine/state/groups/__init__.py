"""Consumer groups: members, assignments, fencing."""
