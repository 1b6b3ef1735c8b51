"""A read-only catalog of Iceberg's REST specification over the topics of a store that are published as tables."""
