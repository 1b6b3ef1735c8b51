"""Programs behind the command `txnlog`: the command itself, the gateway, the console, the exporter, the catalog."""
