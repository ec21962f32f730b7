"""Plan -> records over HTTP. `running` is the load path; the look before a load is `preflight`."""
