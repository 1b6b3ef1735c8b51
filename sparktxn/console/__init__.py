"""A console in the browser: pages over a store's public reads, each of them also as JSON. It changes nothing."""
