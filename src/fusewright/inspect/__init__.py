"""Looking into what was compiled: `explain`, and later reports, diagrams and the bisector."""
