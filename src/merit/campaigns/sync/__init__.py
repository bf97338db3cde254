"""Audiences into other programs: tables of databases, objects of buckets, webhooks."""
