"""Test kits that users and our own tests share."""
