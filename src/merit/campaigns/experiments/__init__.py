"""What a campaign brought: design, assignment, lift, power and pooling. No torch."""
