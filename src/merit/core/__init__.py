"""What everything stands on: settings, artifacts, files, seeds, and the pipeline that runs all stages."""
