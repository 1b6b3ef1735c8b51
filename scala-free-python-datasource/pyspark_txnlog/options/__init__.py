"""What a user gives to Spark: options, offsets, bounds, conditions and schemas."""
