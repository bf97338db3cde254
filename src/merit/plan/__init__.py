"""What a run will take: counted before it, timed by an earlier run or a short probe, and compared after it."""
