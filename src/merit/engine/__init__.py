"""One shard plan, one commit protocol, and three ways to work through the shards: inline, in processes, on Ray."""
