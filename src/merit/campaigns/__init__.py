"""Who gets a campaign, and what it brought. No torch."""
