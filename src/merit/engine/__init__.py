"""One shard plan, one commit protocol, and three ways to work through the shards: here, in processes, on Ray."""
