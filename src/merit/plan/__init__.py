"""What a run will cost before it is run: shapes without weights, devices by their figures, arithmetic."""
