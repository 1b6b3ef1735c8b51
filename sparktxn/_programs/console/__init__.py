"""A console in the browser: pages over a store, each also as JSON. It changes nothing, unless that is allowed."""
