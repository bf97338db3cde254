"""Who gets a campaign: a request, eligibility rules, sizes, forecasts and exports. No torch."""
