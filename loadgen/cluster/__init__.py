"""The same plan in shards over Ray: a worker process on each node, one run folder here.

Needs the extra `[ray]`. A worker is the very process that shares a plan on one machine; a relay on its node
passes on what it says and what it records.
"""
