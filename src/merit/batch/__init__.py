"""Answers about all users, written by the engine: shards of users, here, in processes or on Ray."""
